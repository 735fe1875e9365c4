//! The matrix product behind GEMM and attention: its operands and parameters.
//!
//! `c = alpha · Σ_r a_r · b_r (+ bias) (+ c)`, where a and b come in three layouts, one image each:
//! `nt` (rows of a times rows of b), `nn` (rows of a times columns of b), `tn` (columns times
//! columns). Batches have two levels, and `reduce` products are summed into each c.

use crate::checks::Check;
use crate::gemm::heuristic::{Image, Layout, MOST_PLANES};
use crate::params::{f32, pointer, u32};
use crate::tensor::{Compute, Family, NF4_BLOCK, Stored};
use crate::{Access, Argument, BufferArgument, KernelError, Launch, Parameter, Problem, View};

/// The parameters of every product entry, and then those of scales, which only b in NF4 has.
static PARAMETERS: &[Parameter] = &[
    pointer("a"),
    pointer("b"),
    pointer("c"),
    pointer("bias"),
    u32("m"),
    u32("n"),
    u32("k"),
    u32("reduce"),
    u32("heads"),
    u32("b_group"),
    u32("lda"),
    u32("ldb"),
    u32("ldc"),
    u32("a_batch"),
    u32("a_head"),
    u32("a_reduce"),
    u32("b_batch"),
    u32("b_head"),
    u32("b_reduce"),
    u32("c_batch"),
    u32("c_head"),
    f32("alpha"),
    u32("flags"),
    pointer("b_absmax"),
    pointer("b_nested"),
    pointer("b_map"),
    pointer("b_offset"),
];

/// Parameters of the scales.
const SCALES: usize = 4;

/// The parameters of an image.
pub(crate) const fn parameters(image: &Image) -> &'static [Parameter] {
    let name = image.name.as_bytes();
    let of_nf4 = name[name.len() - 1] == b'4';
    if of_nf4 { PARAMETERS } else { PARAMETERS.split_at(PARAMETERS.len() - SCALES).0 }
}

/// The bits of the parameter `flags`.
mod flag {
    /// c is added to, not overwritten.
    pub(crate) const ACCUMULATE: u32 = 1;
    /// a is read in aligned vectors.
    pub(crate) const A_VECTORS: u32 = 2;
    /// b is read in aligned vectors.
    pub(crate) const B_VECTORS: u32 = 4;
    /// c is written in aligned groups of four.
    pub(crate) const C_QUADS: u32 = 8;
    /// c is bf16.
    pub(crate) const C_BF16: u32 = 16;
}

/// How one operand is walked, in elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strides {
    /// From one row, as stored, to the next.
    pub(crate) leading: usize,
    /// From one batch to the next.
    pub(crate) batch: usize,
    /// From one head to the next.
    pub(crate) head: usize,
    /// From one summand to the next.
    pub(crate) reduce: usize,
}

/// The sizes of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Rows of c.
    pub(crate) m: usize,
    /// Columns of c.
    pub(crate) n: usize,
    /// Length of the contraction.
    pub(crate) k: usize,
    /// Outer batches.
    pub(crate) batches: usize,
    /// Inner batches.
    pub(crate) heads: usize,
    /// How many consecutive heads share one b.
    pub(crate) b_group: usize,
    /// How many products are summed, in order, into each c.
    pub(crate) reduce: usize,
}

/// The largest m, n and k, so that the end of a tile that starts inside has an index of 32 bits.
const LONGEST: usize = 0x7fff_ffff;

/// A product whose operands have the right lengths.
pub(crate) struct Product<B> {
    pub(crate) family: Family,
    pub(crate) compute: Compute,
    pub(crate) layout: Layout,
    pub(crate) a: (Stored<B>, Strides),
    pub(crate) b: (Stored<B>, Strides),
    /// In f32, or in bf16 where a is.
    pub(crate) c: (Stored<B>, Strides),
    pub(crate) bias: Option<View<B, f32>>,
    pub(crate) sizes: Sizes,
    pub(crate) alpha: f32,
    pub(crate) accumulate: bool,
}

impl<B: Copy> Product<B> {
    /// The launch.
    pub(crate) fn launch(self) -> Result<Launch<B>, KernelError> {
        let kernel = self.family.kernel(self.compute, (&self.a.0, &self.b.0))?;
        let check = Check(kernel.name);
        let Sizes { m, n, k, batches, heads, b_group, reduce } = self.sizes;
        let planes = check.product("batch × heads", &[batches, heads])?;
        let planes = check.at_most("batch × heads", planes, MOST_PLANES)?;
        for (what, size) in [("m", m), ("n", n), ("k", k)] {
            check.at_most(what, size, LONGEST)?;
        }
        for ((rows, what), strides) in self.operands() {
            let elements = check.product(what, &[rows, strides.leading])?;
            check.size(what, elements)?;
        }
        let [a_sizes, b_sizes, c_sizes] = self.sizes_of_rows();
        self.b.0.check(check, &b_sizes)?;
        let (b_elements, b_scales) = self.b.0.arguments();
        let mut arguments = vec![
            self.a.0.arguments().0,
            b_elements,
            self.result()?,
            self.bias.map_or(Argument::Null, Argument::read),
        ];
        let (a, b, c) = (self.a.1, self.b.1, self.c.1);
        for (what, value) in [
            ("m", m),
            ("n", n),
            ("k", k),
            ("the number of summands", reduce),
            ("heads", heads),
            ("the number of heads that share an operand", b_group),
            ("the leading dimension of a", a.leading),
            ("the leading dimension of b", b.leading),
            ("the leading dimension of c", c.leading),
            ("the batch stride of a", a.batch),
            ("the head stride of a", a.head),
            ("the summand stride of a", a.reduce),
            ("the batch stride of b", b.batch),
            ("the head stride of b", b.head),
            ("the summand stride of b", b.reduce),
            ("the batch stride of c", c.batch),
            ("the head stride of c", c.head),
        ] {
            arguments.push(Argument::U32(check.size(what, value)?));
        }
        arguments.push(Argument::f32(self.alpha));
        let vectors = [self.a.0.in_vectors(&a_sizes), self.b.0.in_vectors(&b_sizes)];
        let streams = vectors == [true; 2];
        if let Stored::Bf16(a) = self.a.0 {
            let rule = "rows in bf16 start at a multiple of 16 bytes and have a multiple of 8 \
                        elements";
            check.rule(streams, rule, (a.byte_range().start, a_sizes[0]))?;
            if let Stored::Nf4(_) = self.b.0 {
                let ragged = b_sizes.into_iter().find(|size| size % NF4_BLOCK != 0);
                let rule = "beside operands in bf16, rows in NF4 are whole blocks";
                check.rule(ragged.is_none(), rule, (ragged.unwrap_or(0), NF4_BLOCK))?;
            }
        }
        let mut flags = 0;
        for (holds, bit) in [
            (self.accumulate, flag::ACCUMULATE),
            (vectors[0], flag::A_VECTORS),
            (vectors[1], flag::B_VECTORS),
            (self.c.0.in_vectors(&c_sizes), flag::C_QUADS),
            (matches!(self.c.0, Stored::Bf16(_)), flag::C_BF16),
        ] {
            flags |= if holds { bit } else { 0 };
        }
        arguments.push(Argument::U32(flags));
        arguments.extend(b_scales);
        // Every size was checked to fit above.
        let problem = Problem::from([m as u32, n as u32, k as u32, planes, streams.into()]);
        Ok(Launch { kernel, problem, arguments })
    }

    /// Number of stored rows, name and strides of every operand.
    fn operands(&self) -> [((usize, &'static str), Strides); 3] {
        let Sizes { m, n, k, .. } = self.sizes;
        let rows = match self.layout {
            Layout::Nt => [m, n, m],
            Layout::Nn => [m, k, m],
            Layout::Tn => [k, k, m],
        };
        [
            ((rows[0], "the number of elements of a"), self.a.1),
            ((rows[1], "the number of elements of b"), self.b.1),
            ((rows[2], "the number of elements of c"), self.c.1),
        ]
    }

    /// c, which is written whole unless it is added to, or is a part of something with gaps.
    fn result(&self) -> Result<Argument<B>, KernelError> {
        let access = if self.accumulate { Access::ReadWrite } else { Access::Write };
        match (self.c.0, self.a.0) {
            (Stored::F32(c), _) => Ok(Argument::Buffer(BufferArgument::new(c, access))),
            (Stored::Bf16(c), Stored::Bf16(_)) if !self.accumulate => Ok(Argument::write(c)),
            (c, _) => Err(KernelError::Storage {
                kernel: self.family.f32.name,
                compute: self.compute.name(),
                stored: c.name(),
                way_out: "write a result in f32; one in bf16 takes a first operand in bf16, and \
                          is not added to",
            }),
        }
    }

    /// Of every operand the length of a row, as stored, and all distances between elements: vectors
    /// can be used where all are multiples of them, given that buffers themselves are aligned to
    /// 16 bytes, as every CUDA allocation is.
    fn sizes_of_rows(&self) -> [[usize; 5]; 3] {
        let Sizes { m, n, k, .. } = self.sizes;
        let (a_width, b_width) = match self.layout {
            Layout::Nt => (k, k),
            Layout::Nn => (k, n),
            Layout::Tn => (m, n),
        };
        let sizes = |Strides { leading, batch, head, reduce }: Strides, width| {
            [width, leading, batch, head, reduce]
        };
        [sizes(self.a.1, a_width), sizes(self.b.1, b_width), sizes(self.c.1, n)]
    }
}
