//! The state of a model on the device: parameters, moments and rotary tables.

mod load;
mod magnitudes;
mod model_state;
mod rope_tables;
mod upload;
mod value;

pub use load::{Source, frozen_values};
pub(crate) use load::{load_state, trained};
pub use model_state::{DeviceReader, ModelState, Placement, UploadProgress};
pub(crate) use rope_tables::RotaryTables;
pub(crate) use upload::pooled_bytes;
