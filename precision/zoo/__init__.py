"""The zoo: failures that people really meet, each a small named call of attention. One file a family of cases."""
