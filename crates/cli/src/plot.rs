//! The loss curve as SVG. Text is left to whoever shows the picture, so that no font is needed.

use std::path::Path;

use plotters::prelude::*;

use crate::error::CliError;
use crate::file::write;

/// Draws the loss of each step to `path`.
pub(crate) fn loss_curve(path: &Path, title: &str, losses: &[f32]) -> Result<(), CliError> {
    let mut picture = String::new();
    draw(&mut picture, title, losses).map_err(|error| CliError::write("the plot", path, error))?;
    write("the plot", path, &picture)
}

type DrawError = Box<dyn std::error::Error>;

fn draw(picture: &mut String, title: &str, losses: &[f32]) -> Result<(), DrawError> {
    let root = SVGBackend::with_string(picture, (800, 450)).into_drawing_area();
    root.fill(&WHITE)?;
    let largest = losses.iter().copied().fold(0.0f32, f32::max);
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
        .y_desc("loss (nats per byte)")
        .draw()?;
    let points = losses.iter().copied().enumerate();
    chart.draw_series(LineSeries::new(points, BLUE.mix(0.35)))?;
    let smooth = smoothed(losses);
    let points = smooth.into_iter().enumerate();
    chart.draw_series(LineSeries::new(points, BLUE.stroke_width(2)))?;
    root.present()?;
    Ok(())
}

/// The mean of the last steps at each step, so that the trend shows through the noise of batches.
fn smoothed(losses: &[f32]) -> Vec<f32> {
    let span = (losses.len() / 20).max(1);
    let mean = |end: usize| {
        let window = &losses[(end + 1).saturating_sub(span)..=end];
        window.iter().sum::<f32>() / window.len() as f32
    };
    (0..losses.len()).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_is_drawn_without_fonts() {
        let mut picture = String::new();
        draw(&mut picture, "loss", &[5.5, 4.0, 3.0]).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("polyline"), "{picture}");
        assert!(picture.contains("nats per byte"));
    }

    #[test]
    fn no_steps_are_an_empty_picture() {
        let mut picture = String::new();
        draw(&mut picture, "loss", &[]).unwrap();
        assert!(picture.starts_with("<svg"));
    }
}
