"""The admin that never loses what somebody typed: `VersionedModelAdmin` and what its pages are made of."""
