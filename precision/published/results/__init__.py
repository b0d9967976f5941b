"""One file a published result; each registers itself under the name that `precision reproduce` takes."""
