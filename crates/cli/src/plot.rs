//! The loss curve as SVG. Labels are SVG text elements, so drawing needs no font.

use std::path::Path;

use plotters::prelude::*;

use retrograph_finetune::HeldOutLoss;

use crate::error::CliError;
use crate::file::write;

/// The data of a plot.
pub(crate) struct Curves<'a> {
    pub(crate) title: &'a str,
    /// The name of a token: byte or token.
    pub(crate) unit: &'a str,
    /// The loss of each step.
    pub(crate) losses: &'a [f32],
    /// The held-out losses.
    pub(crate) held_out: &'a [HeldOutLoss],
}

/// Draws the losses to `path`.
pub(crate) fn loss_curve(path: &Path, curves: &Curves<'_>) -> Result<(), CliError> {
    let mut picture = String::new();
    draw(&mut picture, curves).map_err(|error| CliError::write("the plot", path, error))?;
    write("the plot", path, &picture)
}

type DrawError = Box<dyn std::error::Error>;

fn draw(picture: &mut String, curves: &Curves<'_>) -> Result<(), DrawError> {
    let Curves { title, unit, losses, held_out } = *curves;
    let root = SVGBackend::with_string(picture, (800, 450)).into_drawing_area();
    root.fill(&WHITE)?;
    let all = losses.iter().copied().chain(held_out.iter().map(|found| found.loss));
    let largest = all.fold(0.0f32, f32::max);
    let top = if largest > 0.0 { largest * 1.05 } else { 1.0 };
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(0..losses.len().max(1), 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("step")
        .y_desc(format!("loss (nats per {unit})"))
        .draw()?;
    let points = losses.iter().copied().enumerate();
    let [each, mean, held] = [BLUE.mix(0.35).into(), BLUE.stroke_width(2), RED.stroke_width(2)];
    let train = chart.draw_series(LineSeries::new(points, each))?;
    train.label("train").legend(move |(x, y)| sample(x, y, each));
    let points = smoothed(losses).into_iter().enumerate();
    let smooth = chart.draw_series(LineSeries::new(points, mean))?;
    smooth
        .label(format!("train, mean of {} steps", span(losses)))
        .legend(move |(x, y)| sample(x, y, mean));
    let points = held_out.iter().map(|found| (found.steps as usize, found.loss));
    if !held_out.is_empty() {
        let line = chart.draw_series(LineSeries::new(points.clone(), held))?;
        line.label("held out").legend(move |(x, y)| sample(x, y, held));
    }
    chart.draw_series(points.map(|point| Circle::new(point, 3, RED.filled())))?;
    let place = SeriesLabelPosition::UpperRight;
    let mut legend = chart.configure_series_labels();
    legend.position(place).background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    root.present()?;
    Ok(())
}

/// The line of a legend.
fn sample(x: i32, y: i32, style: ShapeStyle) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 20, y)], style)
}

/// The number of steps that [`smoothed`] averages.
fn span(losses: &[f32]) -> usize {
    (losses.len() / 20).max(1)
}

/// Returns a moving average of the losses, which shows the trend.
fn smoothed(losses: &[f32]) -> Vec<f32> {
    let span = span(losses);
    let mean = |end: usize| {
        let window = &losses[(end + 1).saturating_sub(span)..=end];
        window.iter().sum::<f32>() / window.len() as f32
    };
    (0..losses.len()).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves<'a>(losses: &'a [f32], held_out: &'a [HeldOutLoss]) -> Curves<'a> {
        Curves { title: "loss", unit: "byte", losses, held_out }
    }

    #[test]
    fn the_curve_is_drawn_without_fonts() {
        let mut picture = String::new();
        draw(&mut picture, &curves(&[5.5, 4.0, 3.0], &[])).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("polyline"), "{picture}");
        assert!(picture.contains("nats per byte") && !picture.contains("<circle"));
        assert!(picture.contains("train, mean of 1 steps") && !picture.contains("held out"));
        let held_out = [1, 3].map(|steps| HeldOutLoss { steps, loss: 6.0, tokens: 9 });
        let mut picture = String::new();
        draw(&mut picture, &curves(&[5.5, 4.0, 3.0], &held_out)).unwrap();
        assert_eq!(picture.matches("<circle").count(), 2);
        assert!(picture.contains("held out"));
    }

    #[test]
    fn a_plot_without_steps_is_empty() {
        let mut picture = String::new();
        draw(&mut picture, &curves(&[], &[])).unwrap();
        assert!(picture.starts_with("<svg"));
    }
}
