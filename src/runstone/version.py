"""The release. Read here by the build, the command line and the documents that name it."""

__version__ = "0.1.0"
