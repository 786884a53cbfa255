//! The drawings of a report, as SVG.

use plotters::prelude::*;

const WIDTH: u32 = 960;
const COST_HEIGHT: u32 = 260;
/// Of a machine in the timeline, in pixels.
const ROW_HEIGHT: u32 = 18;
/// More machines than this are not drawn.
pub(crate) const MACHINES_MAX: usize = 100;

const COST: RGBColor = RGBColor(31, 111, 178);
const SPOT: RGBColor = RGBColor(46, 140, 96);
const ON_DEMAND: RGBColor = RGBColor(31, 111, 178);

/// How long a machine ran.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) is_spot: bool,
    /// Seconds since the beginning.
    pub(crate) from: f64,
    pub(crate) to: f64,
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// The cost per hour over time: `steps` are seconds since the beginning, and the dollars per hour from then on.
pub(crate) fn cost(steps: &[(f64, f64)], end: f64) -> Option<String> {
    rate("cost per hour", steps, end)
}

/// Dollars per hour over time, in the same form.
pub(crate) fn rate(what: &str, steps: &[(f64, f64)], end: f64) -> Option<String> {
    drawn(COST_HEIGHT, |area| {
        let most = steps.iter().map(|(_, dollars)| *dollars).fold(0.01, f64::max) * 1.1;
        let least = steps.iter().map(|(_, dollars)| *dollars).fold(0.0, f64::min) * 1.1;
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(34)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end.max(1.0), least..most)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .y_desc(what)
            .label_style(("sans-serif", 12))
            .x_label_formatter(&clock)
            .y_label_formatter(&|dollars| format!("{dollars:.2}"))
            .draw()?;
        let corners = steps.iter().zip(steps.iter().skip(1).map(|(at, _)| *at).chain([end]));
        let line: Vec<(f64, f64)> = corners.flat_map(|((from, dollars), to)| [(*from, *dollars), (to, *dollars)]).collect();
        chart.draw_series(AreaSeries::new(line.iter().copied(), 0.0, COST.mix(0.15)))?;
        chart.draw_series(LineSeries::new(line, COST.stroke_width(2)))?;
        Ok(())
    })
}

/// A bar for each machine, from its launch to its end.
pub(crate) fn machines(spans: &[Span], end: f64) -> Option<String> {
    let rows = u32::try_from(spans.len().min(MACHINES_MAX)).ok()?;
    drawn(rows * ROW_HEIGHT + 60, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(34)
            .y_label_area_size(220)
            .build_cartesian_2d(0.0..end.max(1.0), 0..i32::try_from(rows).unwrap_or(i32::MAX))?;
        chart.configure_mesh().disable_mesh().disable_y_axis().label_style(("sans-serif", 12)).x_label_formatter(&clock).draw()?;
        let first_on_top = (0..i32::try_from(rows).unwrap_or_default()).rev();
        for (row, span) in first_on_top.zip(spans) {
            let color = if span.is_spot { SPOT } else { ON_DEMAND };
            let to = if span.to > span.from { span.to } else { span.from };
            chart.draw_series([Rectangle::new([(span.from, row), (to, row + 1)], color.mix(0.8).filled())])?;
            let (_, top) = chart.backend_coord(&(0.0, row + 1));
            area.draw(&Text::new(span.name.clone(), (12, top + 3), ("sans-serif", 11).into_font().color(&BLACK.mix(0.8))))?;
        }
        Ok(())
    })
}

/// Seconds since the beginning, as hours, minutes and seconds.
fn clock(seconds: &f64) -> String {
    let (minutes, seconds) = ((seconds / 60.0).floor(), seconds % 60.0);
    format!("{:.0}:{:02.0}:{:02.0}", (minutes / 60.0).floor(), minutes % 60.0, seconds.floor())
}

/// A drawing on white; `None` where it cannot be drawn, for a report is worth something without it.
fn drawn(height: u32, draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn<'static>) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).ok()?;
        draw(&area).ok()?;
        area.present().ok()?;
    }
    Some(svg)
}
