"""A stateful GitHub of our own, under the real PyGithub: comments, statuses, check runs, pulls, permissions, reactions,
contents; with paging, own-host addresses, and faults on demand. Bodies are held against GitHub's published schema and
against the limits that it enforces without publishing them.

In a test: `with serving(FakeGitHub(world)) as fake`. Beside a container: `python -m tests.support.fake_github PORT
--state FILE`, where FILE is the state as JSON, read at the start and rewritten after each change.
"""

from tests.support.fake_github.server import FakeGitHub, serving
from tests.support.fake_github.world import BOT, EVERYTHING, READ_ONLY, Fault, World, sha

__all__ = ["BOT", "EVERYTHING", "READ_ONLY", "FakeGitHub", "Fault", "World", "serving", "sha"]
