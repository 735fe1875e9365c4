//! Answers without text of their own, such as tool calls, found between the messages around them.
//!
//! Marks cannot enclose such an answer. The template therefore writes the conversation once more
//! with marks around the text of all other messages. Between two of these texts are the end of one
//! message, the header of the answer, the answer, and the start of the next message. A few answers
//! are looked for one by one; they tell what is before and after an answer in its gap. A gap that
//! begins or ends otherwise is left to the search.

use std::collections::BTreeMap;
use std::ops::Range;

use super::marks::FEW;
use super::turns::Search;
use crate::hub::HubError;
use crate::tokenizer::ASSISTANT;

/// An answer, as an index of the list of answers, and the text between its neighbours.
type Gap = (usize, Range<usize>);

impl Search<'_> {
    /// Adds the places of those `answers` that have none yet and that gaps find.
    pub(super) fn find_in_gaps(
        &self,
        answers: &[usize],
        places: &mut [Option<Range<usize>>],
    ) -> Result<(), HubError> {
        // Those at the start and the end may be written in another way.
        let inner = 1..answers.len().saturating_sub(1);
        let missing: Vec<usize> = inner.filter(|at| places[*at].is_none()).collect();
        if missing.len() < FEW {
            return Ok(());
        }
        let Some(texts) = self.texts_of_others()? else { return Ok(()) };
        // What the template writes around an answer depends on who speaks before and after it.
        let mut groups: BTreeMap<[Option<String>; 2], Vec<Gap>> = BTreeMap::new();
        for at in missing {
            let [before, after] = [answers[at] - 1, answers[at] + 1];
            if let (Some(left), Some(right)) = (&texts[before], &texts[after]) {
                let roles = [before, after].map(|index| self.conversation.role(index));
                groups.entry(roles).or_default().push((at, left.end..right.start));
            }
        }
        groups.values().try_for_each(|gaps| self.find_alike(answers, gaps, places))
    }

    /// The places of the texts of messages that are not the assistant's, or `None` if the template
    /// does anything with them but write them.
    fn texts_of_others(&self) -> Result<Option<Vec<Option<Range<usize>>>>, HubError> {
        let role = |index: usize| self.conversation.role(index);
        let all = 0..self.conversation.len();
        let others: Vec<usize> = all.filter(|at| role(*at).as_deref() != Some(ASSISTANT)).collect();
        let contents = self.contents(&others);
        let Some(marked) = self.marks(&others, &contents)? else { return Ok(None) };
        let mut texts = vec![None; self.conversation.len()];
        for (index, marked) in others.iter().zip(marked) {
            texts[*index] = marked.map(|marked| marked.text);
        }
        Ok(Some(texts))
    }

    /// Finds the answers in gaps between speakers of the same roles.
    fn find_alike(
        &self,
        answers: &[usize],
        gaps: &[Gap],
        places: &mut [Option<Range<usize>>],
    ) -> Result<(), HubError> {
        if gaps.len() < FEW {
            return Ok(());
        }
        let mut around: Option<[&str; 2]> = None;
        for (at, gap) in [0, gaps.len() / 2, gaps.len() - 1].map(|example| &gaps[example]) {
            let place = self.place(answers[*at])?;
            places[*at] = Some(place.clone());
            if place.start < gap.start || place.end > gap.end {
                return Ok(());
            }
            let found = [&self.whole[gap.start..place.start], &self.whole[place.end..gap.end]];
            if *around.get_or_insert(found) != found {
                return Ok(());
            }
        }
        let Some([before, after]) = around else { return Ok(()) };
        for (at, gap) in gaps {
            let text = &self.whole[gap.clone()];
            let answer = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            if let (None, Some(answer)) = (&places[*at], answer) {
                let start = gap.start + before.len();
                places[*at] = Some(start..start + answer.len());
            }
        }
        Ok(())
    }
}
