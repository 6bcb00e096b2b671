"""Measurements that take longer than a test may: statistics, classifier, speed."""
