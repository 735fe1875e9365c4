//! The state of a model on the device: parameters, moments and rotary tables.

mod load;
mod magnitudes;
mod model_state;
mod rope_tables;
mod upload;
mod value;

pub(crate) use load::{InitialValues, load_state, trained};
pub use load::{Source, frozen_values};
pub use model_state::{DeviceReader, ModelState, Placement, UploadProgress};
pub(crate) use rope_tables::RotaryTables;
pub(crate) use upload::pooled_bytes;
