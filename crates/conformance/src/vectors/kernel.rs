//! PTX of the kernels that apply one instruction to many cases.

use std::fmt::Write;

use super::instance::{Instance, class};

/// Maximum threads of a block.
pub(super) const BLOCK: usize = 256;

/// The text of a module with one entry for each instance: `k0`, `k1`, …
pub fn module(instances: &[&Instance]) -> String {
    let mut text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_owned();
    for (index, instance) in instances.iter().enumerate() {
        entry(&mut text, &format!("k{index}"), instance);
    }
    text
}

/// One entry. Thread t reads the sources of case t, and writes its results.
fn entry(text: &mut String, name: &str, instance: &Instance) {
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{arguments}");
    };
    line(format_args!("// {}", instance.name));
    line(format_args!(".visible .entry {name}(.param .u64 input, .param .u64 output)\n{{"));
    line(format_args!(".reg .b32 %case; .reg .b32 %block; .reg .b32 %size;"));
    line(format_args!(".reg .b64 %in; .reg .b64 %out; .reg .b64 %index; .reg .b32 %flag<8>;"));
    for (at, source) in instance.sources.iter().enumerate() {
        line(format_args!(".reg .{} %s{at};", class(source.of)));
    }
    for (at, of) in instance.results.iter().enumerate() {
        line(format_args!(".reg .{} %d{at};", class(*of)));
    }
    let uses_tile = instance.body.contains("%tile");
    if uses_tile {
        line(format_args!(".shared .align 16 .b8 tile[{}];", BLOCK * 16));
        line(format_args!(".reg .b32 %tile; .reg .b64 %generic;"));
    }
    line(format_args!("mov.u32 %case, %tid.x;"));
    if uses_tile {
        line(format_args!("mov.u32 %tile, tile;\nmad.lo.u32 %tile, %case, 16, %tile;"));
        line(format_args!("cvt.u64.u32 %generic, %tile;\ncvta.shared.u64 %generic, %generic;"));
    }
    line(format_args!("mov.u32 %block, %ctaid.x;\nmov.u32 %size, %ntid.x;"));
    line(format_args!("mad.lo.u32 %case, %block, %size, %case;"));
    line(format_args!("ld.param.u64 %in, [input];\nld.param.u64 %out, [output];"));
    let (sources, results) = (instance.sources.len() * 8, instance.results.len() * 8);
    line(format_args!("mul.wide.u32 %index, %case, {sources};\nadd.u64 %in, %in, %index;"));
    line(format_args!("mul.wide.u32 %index, %case, {results};\nadd.u64 %out, %out, %index;"));
    for (at, source) in instance.sources.iter().enumerate() {
        match class(source.of) {
            "pred" => line(format_args!(
                "ld.global.b32 %flag0, [%in+{}];\nand.b32 %flag0, %flag0, 1;\n\
                 setp.ne.u32 %s{at}, %flag0, 0;",
                at * 8
            )),
            class => line(format_args!("ld.global.{class} %s{at}, [%in+{}];", at * 8)),
        }
    }
    line(format_args!("{}", instance.body));
    if !instance.stores {
        for (at, of) in instance.results.iter().enumerate() {
            match class(*of) {
                "pred" => line(format_args!(
                    "selp.u32 %flag0, 1, 0, %d{at};\nst.global.b32 [%out+{}], %flag0;",
                    at * 8
                )),
                class => line(format_args!("st.global.{class} [%out+{}], %d{at};", at * 8)),
            }
        }
    }
    line(format_args!("ret;\n}}"));
}
