//! PyTorch ÷ ours by row, as horizontal bars. Labels are SVG text elements, so no font is needed.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::results::Record;

type DrawError = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels: height of a row, width of the names, of the bars, and of the margin for numbers.
const ROW: i32 = 18;
const NAMES: i32 = 320;
const BARS: i32 = 560;
const MARGIN: i32 = 60;
const TOP: i32 = 56;

/// Draws the compared rows; `records` are in the order of the table.
pub(super) fn svg(records: &[Record]) -> anyhow::Result<String> {
    let pairs = records.iter().filter_map(|it| Some((it.row.row.as_str(), it.ratio()?)));
    let rows: Vec<(&str, f64)> = pairs.collect();
    let mut picture = String::new();
    draw(&mut picture, &rows).map_err(|error| anyhow::anyhow!("the plot: {error}"))?;
    Ok(picture)
}

fn draw(picture: &mut String, rows: &[(&str, f64)]) -> Result<(), DrawError> {
    let height = TOP + ROW * rows.len() as i32 + 12;
    let size = ((NAMES + BARS + MARGIN) as u32, height as u32);
    let root = SVGBackend::with_string(picture, size).into_drawing_area();
    root.fill(&WHITE)?;
    let most = rows.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max);
    let x = |ratio: f64| NAMES + (ratio / most * f64::from(BARS)) as i32;
    let title = "time of PyTorch ÷ ours (above 1, ours is faster)";
    text(&root, title, NAMES, 18, HPos::Left, 15)?;
    text(&root, "1.0", x(1.0), 40, HPos::Center, 12)?;
    for (index, (name, ratio)) in rows.iter().enumerate() {
        let top = TOP + ROW * index as i32;
        let middle = top + ROW / 2;
        let colour = if *ratio < 1.0 { RED } else { BLUE };
        let bar = [(NAMES, top + 3), (x(*ratio), top + ROW - 3)];
        root.draw(&Rectangle::new(bar, colour.mix(0.6).filled()))?;
        text(&root, name, NAMES - 6, middle, HPos::Right, 12)?;
        // Also right of the line, so that the line crosses no number.
        let end = x(ratio.max(1.0)) + 4;
        text(&root, &format!("{ratio:.2}"), end, middle, HPos::Left, 12)?;
    }
    root.draw(&PathElement::new([(x(1.0), TOP - 6), (x(1.0), height - 10)], BLACK))?;
    root.present()?;
    Ok(())
}

fn text(
    root: &Area<'_>,
    text: &str,
    x: i32,
    y: i32,
    horizontal: HPos,
    size: i32,
) -> Result<(), DrawError> {
    let style = TextStyle::from(("sans-serif", size).into_font());
    let style = style.pos(Pos::new(horizontal, VPos::Center));
    Ok(root.draw(&Text::new(text.to_owned(), (x, y), style))?)
}

#[cfg(test)]
mod tests {
    use super::super::results::parse;
    use super::*;

    #[test]
    fn compared_rows_are_bars_and_losses_are_red() {
        // Made up: these times were not measured.
        let records = parse(include_str!("fixture.jsonl")).unwrap();
        let picture = svg(&records).unwrap();
        assert!(picture.starts_with("<svg"), "{picture}");
        // The background and two bars.
        assert_eq!(picture.matches("<rect").count(), 3, "{picture}");
        assert_eq!(picture.matches("#FF0000").count(), 1, "{picture}");
        assert!(picture.contains("lora-bf16-1.5B-4x512") && picture.contains("0.75"));
        assert!(!picture.contains("lora-nf4"), "a row without a peer has no bar");
    }

    #[test]
    fn a_plot_without_rows_is_empty() {
        assert!(svg(&[]).unwrap().starts_with("<svg"));
    }
}
