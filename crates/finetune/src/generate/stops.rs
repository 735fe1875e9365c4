//! Stop strings, which can span several pieces of a text.
//!
//! ```
//! use retrograph_finetune::StopStrings;
//!
//! let mut stops = StopStrings::new(["END"]);
//! assert_eq!(stops.push("to the E"), ("to the ".to_owned(), false));
//! assert_eq!(stops.push("ND and on"), (String::new(), true));
//! ```

/// A filter that holds back text that may begin a stop string.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    /// Returns a filter for `stops`. Empty strings are ignored.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let stops = stops.into_iter().map(Into::into).filter(|stop| !stop.is_empty());
        Self { stops: stops.collect(), held: String::new() }
    }

    /// Adds a piece of text. Returns the text to output, and whether a stop string was found. The
    /// stop string and the text after it are dropped.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop)).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let rest = self.held.split_off(self.shown());
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Ends the text and returns the text that was held back.
    pub fn finish(self) -> String {
        self.held
    }

    /// Returns the length of the text in which no stop string can begin.
    fn shown(&self) -> usize {
        let mut places = self.held.char_indices().map(|(at, _)| at);
        let may_begin =
            |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        places.find(may_begin).unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut state = StopStrings::new(stops.iter().copied());
        let mut shown = String::new();
        for piece in pieces {
            let (text, stopped) = state.push(piece);
            shown.push_str(&text);
            if stopped {
                return (shown, true);
            }
        }
        shown.push_str(&state.finish());
        (shown, false)
    }

    #[test]
    fn a_stop_is_found_wherever_pieces_end() {
        let text = "one two\nthree";
        for cut in 0..=text.len() {
            for second in cut..=text.len() {
                let pieces = [&text[..cut], &text[cut..second], &text[second..]];
                assert_eq!(run(&["o\n"], &pieces), ("one tw".to_owned(), true));
                assert_eq!(run(&["o\nx", "e\n"], &pieces), (text.to_owned(), false));
            }
        }
    }

    #[test]
    fn the_first_of_several_counts_and_nothing_that_may_be_one_is_shown_early() {
        assert_eq!(run(&["c", "ab"], &["xabc"]), ("x".to_owned(), true));
        let mut state = StopStrings::new(["aab"]);
        assert_eq!(state.push("xa"), ("x".to_owned(), false));
        assert_eq!(state.push("a"), (String::new(), false));
        assert_eq!(state.push("a"), ("a".to_owned(), false));
        assert_eq!(state.push("b"), (String::new(), true));
    }

    #[test]
    fn without_stops_all_is_shown_at_once() {
        assert_eq!(StopStrings::new([""; 1]).push("é→"), ("é→".to_owned(), false));
        assert_eq!(run(&["→x"], &["é→", "y"]), ("é→y".to_owned(), false));
    }
}
