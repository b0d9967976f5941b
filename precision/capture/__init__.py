"""Record what a model hands to attention, for `precision capture`."""
