"""score_mods and mask_mods: recorded as programs, and evaluated."""
