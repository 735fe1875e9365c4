//! Shared ownership of anything that must outlive work on the device.

/// Keeps an object alive: what a graph's nodes access must live as long as the graph.
pub type Owner = std::sync::Arc<dyn std::any::Any + Send + Sync>;
