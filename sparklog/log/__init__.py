"""One partition's log: segments, manifest, tail, append. FORMAT.md is the contract."""
