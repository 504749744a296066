"""From a mask_mod's program to the contract's ``MaskBlocks``."""
