//! The sliding windows in `config.json`.

use super::raw::{Raw, Refusal};
use crate::config::SlidingWindow;

/// Default of `max_window_layers`.
const DEFAULT_WINDOW_LAYERS: usize = 28;
/// Default of `sliding_window`.
const DEFAULT_WINDOW: u32 = 4096;
/// The interval of layers without a window in Gemma 2, and its default in Gemma 3.
const GEMMA_INTERVALS: [usize; 2] = [2, 6];

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// Returns the sliding window. Qwen switches it on, and only for later layers; Mistral and Phi-3
/// have it in every layer, Gemma in most; Llama has none. `layer_types`, in newer files, says it
/// for each layer.
pub(super) fn sliding_window(raw: &Raw) -> Result<Option<SlidingWindow>, Refusal> {
    let (switched_on, first_layer, full_interval) = match raw.model_type.as_str() {
        "mistral" | "phi3" => (true, 0, None),
        "llama" | "smollm3" => (false, 0, None),
        "gemma2" => (true, 0, Some(GEMMA_INTERVALS[0])),
        "gemma3_text" => (true, 0, raw.sliding_window_pattern.or(Some(GEMMA_INTERVALS[1]))),
        _ => {
            let first_layer = raw.max_window_layers.unwrap_or(DEFAULT_WINDOW_LAYERS);
            (raw.use_sliding_window, first_layer, None)
        }
    };
    let default = (raw.model_type != "phi3").then_some(DEFAULT_WINDOW);
    let size = raw.sliding_window.unwrap_or(default).filter(|_| switched_on);
    let window = match &raw.layer_types {
        None => size.map(|size| SlidingWindow { size, first_layer, full_interval }),
        Some(types) => of_types(types, size, raw.num_hidden_layers)?,
    };
    Ok(window.filter(|window| (0..raw.num_hidden_layers).any(|number| window.covers(number))))
}

/// Returns the window of layers with the given types.
fn of_types(
    types: &[String],
    size: Option<u32>,
    layers: usize,
) -> Result<Option<SlidingWindow>, Refusal> {
    const FIELD: &str = "layer_types";
    let known = |kind: &&String| *kind == FULL || (*kind == SLIDING && size.is_some());
    if let Some(kind) = types.iter().find(|kind| !known(kind)) {
        let supported = "full_attention, or sliding_attention with a sliding window";
        return Err((FIELD, kind.clone(), supported));
    }
    let first_layer = types.iter().take_while(|kind| *kind == FULL).count();
    let full = types.iter().skip(first_layer).position(|kind| kind == FULL);
    let full_interval = full.map(|after| first_layer + after + 1);
    let window = size.map(|size| SlidingWindow { size, first_layer, full_interval });
    let is_windowed = |number| window.is_some_and(|window| window.covers(number));
    let matches = |(number, kind): (usize, &String)| (kind == SLIDING) == is_windowed(number);
    if types.len() != layers || !types.iter().enumerate().all(matches) {
        let supported = "a kind for each layer: full_attention in the first ones, and then in \
                         none or at equal distances,";
        return Err((FIELD, types.join(", "), supported));
    }
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windowed(pattern: &str) -> Result<Option<SlidingWindow>, Refusal> {
        let kind = |letter| if letter == 's' { SLIDING } else { FULL }.to_owned();
        of_types(&pattern.chars().map(kind).collect::<Vec<_>>(), Some(8), pattern.len())
    }

    #[test]
    fn kinds_of_layers_at_equal_distances_are_a_window() {
        for (pattern, first_layer, full_interval) in [
            ("ssss", 0, None),
            ("ffss", 2, None),
            ("sfsf", 0, Some(2)),
            ("sssfsssfs", 0, Some(4)),
            ("fssfss", 1, Some(4)),
        ] {
            let window = SlidingWindow { size: 8, first_layer, full_interval };
            assert_eq!(windowed(pattern).unwrap(), Some(window), "{pattern}");
        }
        for pattern in ["sffs", "ssfsfs", "sfss"] {
            assert!(windowed(pattern).is_err(), "{pattern}");
        }
    }
}
