"""Tests of the attachments package."""
