"""What a batch of rows becomes before a metric sees it: sums, and tables of scores, which add up."""
