//! A picture as SVG text.

use std::collections::HashSet;
use std::fmt::Write;

use retrograph_driver::profile::family_of;

use super::layout::Layout;
use super::xml::Xml;
use super::{Picture, Shown};

/// Sizes in pixels.
const MARGIN: f32 = 16.0;
const LINE: f32 = 18.0;
const LANE: f32 = 24.0;
const BOX: f32 = 18.0;
/// Height of the axis, between the text above and the first lane.
const AXIS: f32 = 26.0;
const LETTER: f32 = 6.2;
const LEGEND_COLUMN: f32 = 300.0;
const LEGEND_COLUMNS: usize = 4;
const MIN_WIDTH: f32 = 1200.0;
const MAX_WIDTH: f32 = 24_000.0;
/// Width of an operation in a picture without times: room for a label if there are few levels.
const LEVEL: [f32; 2] = [20.0, 150.0];
/// The width that an operation of the usual time should have in a measured picture.
const USUAL: f32 = 16.0;

/// The family of collectives, whatever their scopes.
const COLLECTIVES: &str = "collectives between devices";
/// Its colour: darker than those of scopes.
const COLLECTIVES_COLOUR: &str = "#7a3fd1";

const STYLE: &str = "text{font:11px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}\
.edge{fill:none;stroke:#8a8a8a;stroke-opacity:.45}.reuse{stroke-dasharray:3 3}\
.hot{stroke:#d40000;stroke-opacity:1;stroke-width:1.6}.op rect{stroke:#555;stroke-width:.5}\
.critical rect{stroke:#d40000;stroke-width:2}.tick{stroke:#ccc;stroke-width:.5}\
.op text{pointer-events:none}";

/// The inputs of drawing.
struct Drawing<'a> {
    picture: &'a Picture,
    layout: Layout,
    /// Pixels for each unit of length.
    scale: f32,
    /// Families of scopes, in the order of first appearance; each has a colour.
    families: Vec<String>,
    critical: HashSet<usize>,
    top: f32,
}

impl Picture {
    /// The picture as SVG text.
    pub(super) fn to_svg(&self) -> String {
        let lengths: Vec<f32> = self.nodes.iter().map(|node| node.ms.unwrap_or(1.0)).collect();
        let pairs: Vec<_> = self.edges.iter().map(|arrow| (arrow.from, arrow.to)).collect();
        let layout = Layout::new(&lengths, &pairs);
        let mut families: Vec<String> = Vec::new();
        for family in self.nodes.iter().map(Shown::family) {
            if !families.contains(&family) {
                families.push(family);
            }
        }
        let critical = layout.critical.iter().copied().collect();
        let top = MARGIN + LINE * (self.remarks.len() + 2) as f32 + AXIS;
        let scale = self.scale(&layout);
        Drawing { picture: self, layout, scale, families, critical, top }.to_svg()
    }

    /// Wide enough to tell operations apart, and no wider than viewers can show.
    fn scale(&self, layout: &Layout) -> f32 {
        let length = layout.length.max(f32::MIN_POSITIVE);
        if !self.timed {
            return (MIN_WIDTH / length).clamp(LEVEL[0], LEVEL[1]);
        }
        let mut times: Vec<f32> = self.nodes.iter().filter_map(|node| node.ms).collect();
        times.sort_unstable_by(f32::total_cmp);
        let usual = times.get(times.len() / 2).copied().unwrap_or(0.0).max(length * 1e-4);
        (USUAL / usual).clamp(MIN_WIDTH / length, MAX_WIDTH / length)
    }
}

impl Shown {
    fn family(&self) -> String {
        match self.is_collective {
            true => COLLECTIVES.to_owned(),
            false => family_of(&self.scope),
        }
    }
}

impl Drawing<'_> {
    fn to_svg(&self) -> String {
        let lanes_end = self.top + LANE * self.layout.lane_count as f32;
        let width = (self.layout.length * self.scale).max(MIN_WIDTH) + 2.0 * MARGIN;
        let legend = self.families.len().div_ceil(LEGEND_COLUMNS) as f32 * LINE;
        let height = lanes_end + legend + 2.0 * MARGIN + LINE;
        let mut xml = Xml::default();
        let view = format!("0 0 {width:.0} {height:.0}");
        xml.open(
            "svg",
            &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("viewBox", &view),
                ("width", &width.round()),
                ("height", &height.round()),
            ],
        );
        xml.leaf("title", &[], &self.picture.title);
        xml.leaf("style", &[], STYLE);
        xml.leaf("rect", &[("width", &"100%"), ("height", &"100%"), ("fill", &"#fff")], "");
        self.heading(&mut xml);
        self.axis(&mut xml, lanes_end);
        self.arrows(&mut xml);
        self.operations(&mut xml);
        self.legend(&mut xml, lanes_end + MARGIN);
        xml.finish()
    }

    fn heading(&self, xml: &mut Xml) {
        let (x, title) = (MARGIN, &self.picture.title);
        xml.leaf("text", &[("class", &"title"), ("x", &x), ("y", &(MARGIN + 12.0))], title);
        let remarks = self.picture.remarks.iter().cloned().chain([self.critical_path()]);
        for (at, remark) in remarks.enumerate() {
            let y = MARGIN + 12.0 + LINE * (at + 1) as f32;
            xml.leaf("text", &[("x", &x), ("y", &y)], &remark);
        }
    }

    /// Returns the sentence about the critical path.
    fn critical_path(&self) -> String {
        let (on, all) = (self.layout.critical.len(), self.picture.nodes.len());
        if !self.picture.timed {
            return format!("critical path: {on} of {all} operations");
        }
        let work: f32 = self.picture.nodes.iter().filter_map(|node| node.ms).sum();
        let length = self.layout.length;
        format!("critical path: {length:.3} ms of {work:.3} ms of work, {on} of {all} operations")
    }

    /// Lines at round times, or at round numbers of operations.
    fn axis(&self, xml: &mut Xml, lanes_end: f32) {
        let step = round_step(90.0 / self.scale, self.picture.timed);
        let ticks = (self.layout.length / step) as usize;
        let (y, upper) = (self.top - 10.0, self.top - 6.0);
        for tick in 0..=ticks {
            let value = tick as f32 * step;
            let x = format!("{:.1}", self.x(value));
            let label = match self.picture.timed {
                true if step >= 1.0 => format!("{value:.0} ms"),
                true => format!("{:.*} ms", decimals(step), value),
                false => format!("{value:.0}"),
            };
            let line: super::xml::Attributes<'_> =
                &[("class", &"tick"), ("x1", &x), ("x2", &x), ("y1", &upper), ("y2", &lanes_end)];
            xml.leaf("line", line, "");
            xml.leaf("text", &[("x", &x), ("y", &y)], &label);
        }
    }

    /// Edges; the longest path comes last, on top.
    fn arrows(&self, xml: &mut Xml) {
        let steps: HashSet<(usize, usize)> =
            self.layout.critical.windows(2).map(|pair| (pair[0], pair[1])).collect();
        for hot in [false, true] {
            for arrow in &self.picture.edges {
                if steps.contains(&(arrow.from, arrow.to)) != hot {
                    continue;
                }
                let mut class = "edge".to_owned();
                class.push_str(if arrow.data { "" } else { " reuse" });
                class.push_str(if hot { " hot" } else { "" });
                let path = self.path(arrow.from, arrow.to);
                xml.leaf("path", &[("class", &class), ("d", &path)], "");
            }
        }
    }

    fn path(&self, from: usize, to: usize) -> String {
        let [x, width] = self.span(from);
        let (start, end) = (x + width, self.span(to)[0]);
        let (y, target) = (self.y(from) + BOX / 2.0, self.y(to) + BOX / 2.0);
        let bend = ((end - start) / 2.0).clamp(6.0, 60.0);
        let (first, second) = (start + bend, end - bend);
        format!("M{start:.1} {y:.1}C{first:.1} {y:.1} {second:.1} {target:.1} {end:.1} {target:.1}")
    }

    /// One group for each operation, in one group for each family of scopes.
    fn operations(&self, xml: &mut Xml) {
        let of: Vec<String> = self.picture.nodes.iter().map(Shown::family).collect();
        for (at, family) in self.families.iter().enumerate() {
            xml.open(
                "g",
                &[("class", &"scope"), ("data-scope", family), ("fill", &of_family(at, family))],
            );
            let members = (0..of.len()).filter(|&node| of[node] == *family);
            members.for_each(|node| self.operation(xml, node));
            xml.close();
        }
    }

    fn operation(&self, xml: &mut Xml, at: usize) {
        let node = &self.picture.nodes[at];
        let class = if self.critical.contains(&at) { "op critical" } else { "op" };
        xml.open("g", &[("class", &class), ("data-op", &at)]);
        xml.leaf("title", &[], &node.tooltip(at));
        let ([x, width], y) = (self.span(at), self.y(at));
        let [place, size] = [x, width].map(|value| format!("{value:.1}"));
        let frame: super::xml::Attributes<'_> =
            &[("x", &place), ("y", &y), ("width", &size), ("height", &BOX), ("rx", &2)];
        xml.leaf("rect", frame, "");
        let letters = ((width - 6.0) / LETTER) as usize;
        if letters >= 3 {
            let label: String = node.kernel.chars().take(letters).collect();
            let x = format!("{:.1}", x + 3.0);
            xml.leaf("text", &[("x", &x), ("y", &(y + 13.0))], &label);
        }
        xml.close();
    }

    fn legend(&self, xml: &mut Xml, top: f32) {
        for (at, family) in self.families.iter().enumerate() {
            let x = MARGIN + (at % LEGEND_COLUMNS) as f32 * LEGEND_COLUMN;
            let y = top + (at / LEGEND_COLUMNS) as f32 * LINE;
            let name = if family.is_empty() { "(no scope)" } else { family };
            let swatch: super::xml::Attributes<'_> = &[
                ("x", &x),
                ("y", &y),
                ("width", &12),
                ("height", &12),
                ("fill", &of_family(at, family)),
            ];
            xml.leaf("rect", swatch, "");
            let letters = (LEGEND_COLUMN / LETTER) as usize - 4;
            let name: String = name.chars().take(letters).collect();
            xml.leaf("text", &[("x", &(x + 18.0)), ("y", &(y + 10.0))], &name);
        }
    }

    fn x(&self, length: f32) -> f32 {
        MARGIN + length * self.scale
    }

    fn y(&self, at: usize) -> f32 {
        self.top + LANE * self.layout.lanes[at] as f32 + (LANE - BOX) / 2.0
    }

    /// Returns left edge and width, with a visible minimum width.
    fn span(&self, at: usize) -> [f32; 2] {
        let length = self.picture.nodes[at].ms.unwrap_or(1.0);
        let gap = if self.picture.timed { 0.0 } else { 8.0 };
        [self.x(self.layout.starts[at]), (length * self.scale - gap).max(1.0)]
    }
}

impl Shown {
    fn tooltip(&self, at: usize) -> String {
        let Self { name, kernel, .. } = self;
        let mut text = format!("#{at} {name}\nkernel {kernel}");
        if let Some([read, written]) = self.bytes {
            let _ = write!(text, "\nreads {read} bytes, writes {written} bytes");
        }
        if let Some(ms) = self.ms {
            let _ = write!(text, "\n{:.1} µs", ms * 1e3);
        }
        text
    }
}

/// The colour of the family at a position.
fn of_family(at: usize, family: &str) -> String {
    if family == COLLECTIVES { COLLECTIVES_COLOUR.to_owned() } else { colour(at) }
}

/// Light colours a golden angle apart, so that consecutive ones differ most.
fn colour(at: usize) -> String {
    let hue = (at as f32 * 137.508) % 360.0 / 60.0;
    let (light, strength) = if at.is_multiple_of(2) { (0.8, 0.17) } else { (0.7, 0.22) };
    // Red, green and blue each vary once around the color wheel, a third of a turn apart.
    let part = |shift: f32| {
        let near = ((hue + shift) % 6.0 - 3.0).abs() - 1.5;
        ((light + strength * (2.0 * near).clamp(-1.0, 1.0)) * 255.0) as u8
    };
    format!("#{:02x}{:02x}{:02x}", part(0.0), part(4.0), part(2.0))
}

/// Returns the smallest of 1, 2, 5, 10 … (and 0.5, 0.2 … if `fine`) that is at least `least`.
fn round_step(least: f32, fine: bool) -> f32 {
    let least = if fine { least.max(1e-6) } else { least.max(1.0) };
    let power = 10f32.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * 0.9999);
    factor.unwrap_or(10.0) * power
}

fn decimals(step: f32) -> usize {
    (-step.log10().floor()).clamp(0.0, 6.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_axis_are_round() {
        let near = |found: f32, expected: f32| (found / expected - 1.0).abs() < 1e-3;
        for (least, expected) in [(3.0, 5.0), (1.0, 1.0), (0.011, 0.02), (70.0, 100.0)] {
            assert!(near(round_step(least, true), expected), "{least}");
        }
        assert_eq!(round_step(0.3, false), 1.0, "there is no half operation");
        assert_eq!([decimals(0.02), decimals(0.1), decimals(5.0)], [2, 1, 0]);
    }

    #[test]
    fn neighbours_differ_in_colour() {
        let colours: HashSet<String> = (0..40).map(colour).collect();
        assert_eq!(colours.len(), 40);
    }
}
