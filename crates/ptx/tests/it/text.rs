//! Texts as others write them.
