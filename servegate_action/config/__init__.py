"""Words: the contract with the user. Models, loading with line numbers, merging base and head, a starter file."""
