"""Everything that GitHub sees or says: events, statuses, check runs, the comment, policy at the base commit, artifacts.

This room passes on finished text and one of four words; it never decides, never measures, and never turns "could not
post" into a verdict. PyGithub is used in `api` only; every other module speaks through it.
"""
