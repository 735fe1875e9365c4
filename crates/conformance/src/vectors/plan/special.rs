//! Special cases of instructions.

use retrograph_ptx::ast::{Modifier, Type};
use retrograph_ptx::instructions::{Form, Opcode, Shape};

use super::choice::{Choice, move_class};
use crate::vectors::instance::Role;

/// The SM target of the machine on which vectors are recorded.
const SM: u32 = 90;

/// The reason why a form has no vectors, if it has none.
pub(super) fn reason_against(opcode: Opcode, form: &Form) -> Option<&'static str> {
    let is_reduction = form.slots.iter().any(|slot| slot.choices.contains(&Modifier::Red));
    if is_barrier(opcode) && is_reduction {
        return None;
    }
    if form.types.first().is_some_and(|types| types.iter().all(|of| of.size() > 8)) {
        return Some("the generator does not support sixteen-byte values");
    }
    let has = |of: &Type| form.types.iter().any(|types| types.contains(of));
    let converts_bytes = opcode.text() == "cvt" && has(&Type::Bf16) && has(&Type::S8);
    let unpacks = form.operands.first() == Some(&Shape::Unpacked);
    if converts_bytes || unpacks && has(&Type::B16) {
        return Some("it needs registers of 8 bits, which the generator does not have");
    }
    if form.sm > SM {
        return Some("the GPU of the recording, sm_90, does not have it");
    }
    let reason = match opcode.text() {
        "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt" | "call" | "nanosleep" => {
            "it is control flow and returns no value"
        }
        "bar" | "barrier" | "membar" | "fence" | "mbarrier" | "griddepcontrol" | "cp" => {
            "it orders other operations and returns no value"
        }
        "prefetch" | "prefetchu" | "discard" | "applypriority" | "setmaxnreg" => {
            "it changes timing, not values"
        }
        "cvta" | "isspacep" | "mapa" | "getctarank" | "alloca" | "createpolicy" => {
            "its values are addresses, which differ from run to run"
        }
        "wmma" => "the fragment layout is not documented; kernels of the tests cover it",
        "wgmma" => "its matrices are in shared memory; kernels of the tests cover it",
        "fns" => "its value for a base beyond 31 is not defined",
        "activemask" => "the set of active lanes is not guaranteed",
        "elect" => "the elected lane is not guaranteed",
        _ => return None,
    };
    Some(reason)
}

/// Whether the instruction is a barrier, with a number and a thread count as operands.
pub(super) fn is_barrier(opcode: Opcode) -> bool {
    matches!(opcode.text(), "bar" | "barrier")
}

/// Whether an instruction has many modifiers that do not affect the computed value.
pub(super) fn has_modifiers_of_place(opcode: Opcode) -> bool {
    matches!(opcode.text(), "ld" | "st" | "atom" | "red" | "ldu" | "set")
}

/// Whether a modifier of such an instruction affects the computed value.
pub(super) fn says_what(word: Modifier) -> bool {
    let words = [
        "add", "min", "max", "inc", "dec", "exch", "cas", "v2", "v4", "v8", "eq", "ne", "lt", "le",
        "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
    ];
    words.contains(&word.text())
}

/// Cases per instance for a number of instances of its form.
pub(super) fn cases(opcode: Opcode, instances: usize) -> usize {
    match (opcode.text(), instances) {
        ("bar" | "barrier", _) => 256,
        ("ld" | "st" | "ldu" | "set", _) => 32,
        ("mma" | "ldmatrix" | "stmatrix", _) => 128,
        ("atom" | "red", 9..) => 64,
        (_, 0..=20) => 256,
        (_, 21..=80) => 128,
        _ => 96,
    }
}

/// Whether a choice needs a state space that the cases or the simulator lack.
pub(super) fn is_elsewhere(choice: &Choice<'_>) -> bool {
    is_not_simulated(choice) || is_of_another_space(choice)
}

/// Whether the simulator does not support a choice. `ptxas` accepts some that the manual does not
/// define.
fn is_not_simulated(choice: &Choice<'_>) -> bool {
    let of = choice.types.first().copied();
    let is_bf16 = matches!(of, Some(Type::Bf16 | Type::Bf16x2));
    let is_directed = ["rz", "rm", "rp"].iter().any(|word| choice.says(word));
    match choice.opcode.text() {
        "fma" => choice.says("oob") || is_directed && is_bf16,
        "madc" => choice.says("sat") || of.is_some_and(|of| of.size() == 2),
        "mma" => is_directed,
        _ => false,
    }
}

fn is_of_another_space(choice: &Choice<'_>) -> bool {
    let others = [
        "param",
        "local",
        "const",
        "param::entry",
        "param::func",
        "shared::cluster",
        "mmio",
        "cluster",
        "L2::cache_hint",
    ];
    let bytes = choice.types.first().map_or(0, |of| of.size());
    choice.modifiers.iter().any(|word| others.contains(&word.text()))
        || choice.vector() as u32 * bytes > 16
        || bytes > 8
}

/// Values for a constant operand, each of which makes an instance.
pub(super) fn constants(opcode: Opcode, form: &Form) -> Vec<Option<i64>> {
    if !form.operands.contains(&Shape::Constant) {
        return vec![None];
    }
    match opcode.text() {
        "lop3" => [0x00, 0x1f, 0x80, 0x96, 0xca, 0xe8, 0xfe, 0xff].map(Some).to_vec(),
        _ => [0, 1, 3].map(Some).to_vec(),
    }
}

/// Whether the last operand is the member mask.
pub(super) fn ends_with_mask(opcode: Opcode) -> bool {
    matches!(opcode.text(), "shfl" | "vote" | "match" | "redux")
}

/// The distribution of an instruction's sources.
pub(super) fn role(opcode: Opcode) -> Role {
    match opcode.text() {
        "mma" => Role::Exact,
        _ => Role::Value,
    }
}

/// The type as wide as a register that holds it: bytes are held in words.
pub(super) fn widened(of: Type) -> Type {
    match of {
        Type::B8 | Type::U8 => Type::U32,
        Type::S8 => Type::S32,
        other => other,
    }
}

impl Choice<'_> {
    /// Whether a modifier with this text is chosen.
    fn says(&self, text: &str) -> bool {
        self.modifiers.iter().any(|word: &Modifier| word.text() == text)
    }

    /// Sets the carry from a source, for instructions that read it.
    pub(super) fn carry_in(&mut self) {
        if matches!(self.opcode.text(), "addc" | "subc" | "madc") {
            let source = self.source(Type::Pred, Role::Value);
            self.before.push_str(&format!(
                "selp.u32 %flag1, 1, 0, {source};\nadd.cc.u32 %flag1, %flag1, 0xffffffff;\n"
            ));
        }
    }

    /// Adds the carry as a result, for instructions that write it.
    pub(super) fn carry_out(&mut self) {
        if self.says("cc") {
            let carry = self.result(Type::U32);
            self.after.push_str(&format!("addc.u32 {carry}, 0, 0;\n"));
        }
    }

    /// The address of a memory operand; initialises the memory and reads it back afterwards.
    pub(super) fn memory(&mut self) -> Result<String, &'static str> {
        let is_shared = self.says("shared") || self.says("shared::cta");
        match self.opcode.text() {
            "ld" | "ldu" => Ok(self.loads_from(is_shared)),
            "st" => Ok(self.stores_to(is_shared)),
            "atom" | "red" => Ok(self.changes(is_shared)),
            "ldmatrix" => Ok(self.matrix_in(is_shared)),
            "stmatrix" => Ok(self.matrix_out(is_shared)),
            _ => Err("a memory operand that the generator does not support"),
        }
    }

    /// Two words whose first bytes the instruction loads. The kernel has 16 bytes of shared memory
    /// per thread at `%tile`.
    fn loads_from(&mut self, is_shared: bool) -> String {
        let first = self.sources.len();
        let low = self.source(Type::B64, Role::Value);
        let high = self.source(Type::B64, Role::Value);
        if !is_shared {
            // Inputs are contiguous.
            return format!("[%in+{}]", first * 8);
        }
        self.before.push_str(&format!(
            "st.shared.b64 [%tile], {low};\nst.shared.b64 [%tile+8], {high};\n"
        ));
        "[%tile]".to_owned()
    }

    fn stores_to(&mut self, is_shared: bool) -> String {
        let (low, high) = (self.result(Type::B64), self.result(Type::B64));
        if !is_shared {
            self.before.push_str("st.global.b64 [%out], 0;\nst.global.b64 [%out+8], 0;\n");
            self.stores = true;
            return "[%out]".to_owned();
        }
        self.before.push_str("st.shared.b64 [%tile], 0;\nst.shared.b64 [%tile+8], 0;\n");
        self.after.push_str(&format!(
            "ld.shared.b64 {low}, [%tile];\nld.shared.b64 {high}, [%tile+8];\n"
        ));
        "[%tile]".to_owned()
    }

    /// Memory of the thread with an initial value; its final value is a result.
    fn changes(&mut self, is_shared: bool) -> String {
        let of = self.types[0];
        let class = move_class(of);
        let (space, place) = match is_shared {
            true => ("shared", "[%tile]"),
            // The first result of the case, which is written last with the value read before.
            false => ("global", "[%out]"),
        };
        for at in 0..self.vector() as u32 {
            let (old, new) = (self.source(of, Role::Value), self.result(of));
            let element = place.replace(']', &format!("+{}]", at * of.size()));
            self.before.push_str(&format!("st.{space}.{class} {element}, {old};\n"));
            self.after.push_str(&format!("ld.{space}.{class} {new}, {element};\n"));
        }
        place.to_owned()
    }

    /// A matrix row of four words per lane.
    fn matrix_in(&mut self, is_shared: bool) -> String {
        for at in 0..4 {
            let word = self.source(Type::B32, Role::Value);
            self.before.push_str(&format!("st.shared.b32 [%tile+{}], {word};\n", at * 4));
        }
        self.before.push_str("bar.warp.sync 0xffffffff;\n");
        matrix_address(is_shared)
    }

    fn matrix_out(&mut self, is_shared: bool) -> String {
        self.after.push_str("bar.warp.sync 0xffffffff;\n");
        for at in 0..4 {
            self.before.push_str(&format!("st.shared.b32 [%tile+{}], 0;\n", at * 4));
            let word = self.result(Type::B32);
            self.after.push_str(&format!("ld.shared.b32 {word}, [%tile+{}];\n", at * 4));
        }
        self.before.push_str("bar.warp.sync 0xffffffff;\n");
        matrix_address(is_shared)
    }
}

/// The address of the thread's tile: shared or generic.
fn matrix_address(is_shared: bool) -> String {
    if is_shared { "[%tile]".to_owned() } else { "[%generic]".to_owned() }
}
