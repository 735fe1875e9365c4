//! Shared ownership of objects that must outlive work on the device.

/// Keeps an object alive, since memory that a graph's nodes access must outlive the graph.
pub type Owner = std::sync::Arc<dyn std::any::Any + Send + Sync>;
