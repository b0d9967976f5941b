"""The cases. A frozen dataclass each; its options make the members of a kind."""
