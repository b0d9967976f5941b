"""What experiments share, claims and published results alike: effort, draws, measured values, figures, pages."""
