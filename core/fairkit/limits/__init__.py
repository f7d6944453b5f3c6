"""Confidence limits of one number: shares and means, where counts are small or tails are heavy too."""
