"""The admin that never loses typed input: `VersionedModelAdmin` and its pages."""
