"""A streaming server of our own with an exact schedule, every misbehaviour, and its own stamps as the truth."""

from tests.support.scripted_server.run import Scripted, scripted
from tests.support.scripted_server.script import Answer, Part, Script, Step, chunk, plain, recut, sse

__all__ = ["Answer", "Part", "Script", "Scripted", "Step", "chunk", "plain", "recut", "scripted", "sse"]
