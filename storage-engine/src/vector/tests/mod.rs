//! Tests of whole partitions.
