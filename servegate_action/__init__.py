"""servegate: a change to an LLM serving stack is merged only when it is measured to be no worse.

The package is laid out in the order in which the data walks: configuration and workload (words), launch, identity,
load and telemetry (hands that measure), the recording on disk (the seam), analysis and report (thought), and GitHub
(hands that publish). Importing this package does nothing but name its version.
"""

__version__ = "0.1.0"
