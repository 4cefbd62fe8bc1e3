"""Programs that search for hours: what they kill, or make at random, must harm nothing."""
