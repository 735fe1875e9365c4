//! Instruction modifiers, the words after the dot that are not types.

use crate::words::words;

words! {
    /// A modifier word. The same word may mean different things to different instructions
    /// (`lo` in `mul.lo` and `setp.lo`); the instruction decides.
    ///
    /// The order of the variants is the order in which modifiers are printed.
    pub enum Modifier {
        // The operations of `cp`, `mbarrier`, `setmaxnreg`, `wmma` and `wgmma`. A word with a dot
        // stands for several modifiers that only occur together.
        Async = "async",
        AsyncBulk = "async.bulk",
        AsyncBulkTensor = "async.bulk.tensor",
        ReduceAsyncBulk = "reduce.async.bulk",
        ReduceAsyncBulkTensor = "reduce.async.bulk.tensor",
        BulkPrefetch = "async.bulk.prefetch",
        BulkCommitGroup = "async.bulk.commit_group",
        BulkWaitGroup = "async.bulk.wait_group",
        Init = "init",
        Inval = "inval",
        ArriveExpectTx = "arrive.expect_tx",
        ArriveNoComplete = "arrive.noComplete",
        ExpectTx = "expect_tx",
        CompleteTx = "complete_tx",
        TestWait = "test_wait",
        TestWaitParity = "test_wait.parity",
        TryWait = "try_wait",
        TryWaitParity = "try_wait.parity",
        IncSync = "inc.sync",
        DecSync = "dec.sync",
        // Direction and completion of a bulk copy.
        Read = "read",
        Dim1 = "1d",
        Dim2 = "2d",
        Dim3 = "3d",
        Dim4 = "4d",
        Dim5 = "5d",
        SharedClusterGlobal = "shared::cluster.global",
        GlobalSharedCta = "global.shared::cta",
        Tile = "tile",
        BulkGroup = "bulk_group",
        MbarrierCompleteTxBytes = "mbarrier::complete_tx::bytes",
        MulticastCluster = "multicast::cluster",
        CommitGroup = "commit_group",
        WaitGroup = "wait_group",
        WaitAll = "wait_all",
        LoadA = "load.a",
        LoadB = "load.b",
        LoadC = "load.c",
        StoreD = "store.d",
        Mma = "mma",
        MmaAsync = "mma_async",
        Fence = "fence",
        // Memory order and scope.
        MbarrierInit = "mbarrier_init",
        Volatile = "volatile",
        Weak = "weak",
        Relaxed = "relaxed",
        Acquire = "acquire",
        Release = "release",
        AcqRel = "acq_rel",
        Sc = "sc",
        Mmio = "mmio",
        Cta = "cta",
        Cluster = "cluster",
        Gpu = "gpu",
        Sys = "sys",
        Gl = "gl",
        ProxyAlias = "proxy.alias",
        ProxyAsync = "proxy.async",
        // State spaces.
        To = "to",
        Param = "param",
        ParamEntry = "param::entry",
        ParamFunc = "param::func",
        Global = "global",
        Shared = "shared",
        SharedCta = "shared::cta",
        SharedCluster = "shared::cluster",
        Local = "local",
        Const = "const",
        // Caches and vectors.
        Ca = "ca",
        Cg = "cg",
        Cs = "cs",
        Lu = "lu",
        Cv = "cv",
        Wb = "wb",
        Wt = "wt",
        Nc = "nc",
        SharedGlobal = "shared.global",
        L1EvictNormal = "L1::evict_normal",
        L1EvictUnchanged = "L1::evict_unchanged",
        L1EvictFirst = "L1::evict_first",
        L1EvictLast = "L1::evict_last",
        L1NoAllocate = "L1::no_allocate",
        L2EvictNormal = "L2::evict_normal",
        L2EvictFirst = "L2::evict_first",
        L2EvictLast = "L2::evict_last",
        L2CacheHint = "L2::cache_hint",
        L2Bytes64 = "L2::64B",
        L2Bytes128 = "L2::128B",
        L2Bytes256 = "L2::256B",
        L2Global = "L2.global",
        L1 = "L1",
        L2 = "L2",
        Tensormap = "tensormap",
        V2 = "v2",
        V4 = "v4",
        V8 = "v8",
        // Warps and blocks.
        Warp = "warp",
        Sync = "sync",
        Arrive = "arrive",
        Wait = "wait",
        LaunchDependents = "launch_dependents",
        Red = "red",
        Popc = "popc",
        Aligned = "aligned",
        Bfly = "bfly",
        Up = "up",
        Down = "down",
        Idx = "idx",
        Ballot = "ballot",
        Any = "any",
        All = "all",
        Uni = "uni",
        // Shapes, numbers and layouts of matrices.
        M8n8 = "m8n8",
        M8n8k4 = "m8n8k4",
        M8n8k16 = "m8n8k16",
        M16n8k4 = "m16n8k4",
        M16n8k8 = "m16n8k8",
        M16n8k16 = "m16n8k16",
        M16n8k32 = "m16n8k32",
        M16n16k8 = "m16n16k8",
        M16n16k16 = "m16n16k16",
        M32n8k16 = "m32n8k16",
        M8n32k16 = "m8n32k16",
        M64n32k8 = "m64n32k8",
        M64n64k8 = "m64n64k8",
        M64n32k16 = "m64n32k16",
        M64n64k16 = "m64n64k16",
        M64n96k16 = "m64n96k16",
        M64n128k16 = "m64n128k16",
        M64n192k16 = "m64n192k16",
        M64n224k16 = "m64n224k16",
        M64n256k16 = "m64n256k16",
        X1 = "x1",
        X2 = "x2",
        X4 = "x4",
        Trans = "trans",
        RowRow = "row.row",
        RowCol = "row.col",
        ColRow = "col.row",
        ColCol = "col.col",
        Row = "row",
        Col = "col",
        Satfinite = "satfinite",
        // Arithmetic and rounding.
        Approx = "approx",
        Full = "full",
        Rn = "rn",
        Rna = "rna",
        Rz = "rz",
        Rm = "rm",
        Rp = "rp",
        Rni = "rni",
        Rzi = "rzi",
        Rmi = "rmi",
        Rpi = "rpi",
        Lo = "lo",
        Hi = "hi",
        Wide = "wide",
        Cc = "cc",
        // Comparison; `lo` and `hi` are above.
        Eq = "eq",
        Ne = "ne",
        Lt = "lt",
        Le = "le",
        Gt = "gt",
        Ge = "ge",
        Ls = "ls",
        Hs = "hs",
        Equ = "equ",
        Neu = "neu",
        Ltu = "ltu",
        Leu = "leu",
        Gtu = "gtu",
        Geu = "geu",
        Num = "num",
        Nan = "nan",
        // Classes of `testp`.
        Finite = "finite",
        Infinite = "infinite",
        Number = "number",
        NotANumber = "notanumber",
        Normal = "normal",
        Subnormal = "subnormal",
        // Operations of atomics and of combining `setp`.
        Add = "add",
        Min = "min",
        Max = "max",
        Exch = "exch",
        Cas = "cas",
        And = "and",
        Or = "or",
        Xor = "xor",
        Inc = "inc",
        Dec = "dec",
        // Bits.
        L = "l",
        R = "r",
        Wrap = "wrap",
        Clamp = "clamp",
        ForwardExtract = "f4e",
        BackwardExtract = "b4e",
        Replicate8 = "rc8",
        EdgeClampLeft = "ecl",
        EdgeClampRight = "ecr",
        Replicate16 = "rc16",
        ShiftAmount = "shiftamt",
        // Handling of results out of range.
        Ftz = "ftz",
        PropagateNan = "NaN",
        XorSignAbs = "xorsign.abs",
        Abs = "abs",
        NoFtz = "noftz",
        Oob = "oob",
        Relu = "relu",
        Sat = "sat",
    }
}

// The set below has one bit for each modifier.
const _: () = assert!(Modifier::ALL.len() <= 256);

/// A set of modifiers. Their order has no meaning in PTX.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Modifiers([u128; 2]);

impl Modifiers {
    /// The empty set.
    pub const NONE: Self = Self([0; 2]);

    /// The set of `list`.
    pub const fn of(list: &[Modifier]) -> Self {
        let (mut set, mut index) = (Self::NONE, 0);
        while index < list.len() {
            set = set.with(list[index]);
            index += 1;
        }
        set
    }

    /// This set and `modifier`.
    #[must_use]
    pub const fn with(self, modifier: Modifier) -> Self {
        let mut set = self;
        set.0[modifier as usize / 128] |= 1 << (modifier as u32 % 128);
        set
    }

    /// Adds `modifier`. Returns false if the set already has it.
    pub fn insert(&mut self, modifier: Modifier) -> bool {
        let fresh = !self.has(modifier);
        *self = self.with(modifier);
        fresh
    }

    /// Whether `modifier` is in the set.
    pub const fn has(self, modifier: Modifier) -> bool {
        self.0[modifier as usize / 128] & 1 << (modifier as u32 % 128) != 0
    }

    /// The first of `list` that is in the set.
    pub fn first_of(self, list: &[Modifier]) -> Option<Modifier> {
        list.iter().copied().find(|&modifier| self.has(modifier))
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0[0] | self.0[1] == 0
    }

    /// The modifiers, in the order of [`Modifier::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Modifier> {
        let Self([mut low, mut high]) = self;
        std::iter::from_fn(move || {
            let (word, first) = if low != 0 { (&mut low, 0) } else { (&mut high, 128) };
            let bit = (*word != 0).then(|| word.trailing_zeros() as usize)?;
            *word &= *word - 1;
            Some(Modifier::ALL[first + bit])
        })
    }
}

impl FromIterator<Modifier> for Modifiers {
    fn from_iter<I: IntoIterator<Item = Modifier>>(list: I) -> Self {
        list.into_iter().fold(Self::NONE, Self::with)
    }
}

impl std::fmt::Debug for Modifiers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
