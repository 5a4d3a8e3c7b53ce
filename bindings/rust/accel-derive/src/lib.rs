// SPDX-License-Identifier: Apache-2.0
//! `#[derive(Tree)]` of the crate `libaccel`.
#![deny(missing_docs)]
use proc_macro::{Delimiter, Spacing, TokenStream, TokenTree};

/// Makes a struct of tensors, and of everything else that is a `Tree`, one itself: collectives take and give it, and a batch is turned
/// into it. Named fields are the keys of a map, or the items of a list or tuple by their places; fields without names always the latter.
#[proc_macro_derive(Tree)]
pub fn derive_tree(item: TokenStream) -> TokenStream {
    let code =
        Record::read(item).map(|record| record.code()).unwrap_or_else(|reason| format!("compile_error!({reason:?});"));
    code.parse().expect("code of this crate")
}

/// A struct: its name, and the names of its fields or their number.
struct Record {
    name: String,
    fields: Fields,
}

enum Fields {
    Named(Vec<String>),
    Places(usize),
}

impl Record {
    fn read(item: TokenStream) -> Result<Self, String> {
        const EXPECTED: &str = "derive(Tree): expected a struct without type parameters that has fields";
        let mut tokens = item
            .into_iter()
            .skip_while(|token| !matches!(token, TokenTree::Ident(word) if word.to_string() == "struct"));
        tokens.next().ok_or(EXPECTED)?;
        let name = tokens.next().ok_or(EXPECTED)?.to_string();
        match tokens.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let names = parts(group.stream()).iter().map(|field| field_name(field)).collect::<Option<Vec<_>>>();
                Ok(Record { name, fields: Fields::Named(names.ok_or(EXPECTED)?) })
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                Ok(Record { name, fields: Fields::Places(parts(group.stream()).len()) })
            }
            _ => Err(EXPECTED.into()),
        }
    }

    fn code(&self) -> String {
        let Record { name, fields } = self;
        let (to, from) = match fields {
            Fields::Named(names) => {
                let key = |field: &str| field.trim_start_matches("r#").to_string();
                let to =
                    names.iter().map(|field| format!("({:?}, ::accel::Tree::to_value(&self.{field})?),", key(field)));
                let from = names.iter().map(|field| format!("{field}: fields.named({:?})?,", key(field)));
                (
                    format!("::accel::Value::map([{}])", to.collect::<String>()),
                    format!("{{ {} }}", from.collect::<String>()),
                )
            }
            Fields::Places(number) => {
                let to = (0..*number).map(|place| format!("::accel::Tree::to_value(&self.{place})?,"));
                let from = "fields.next()?,".repeat(*number);
                (format!("::accel::Value::tuple([{}])", to.collect::<String>()), format!("({from})"))
            }
        };
        let number = match fields {
            Fields::Named(names) => names.len(),
            Fields::Places(number) => *number,
        };
        format!(
            "#[automatically_derived]
            impl ::accel::Tree for {name} {{
                fn to_value(&self) -> ::accel::Result<::accel::Value> {{ {to} }}
                fn from_value(value: ::accel::Value) -> ::accel::Result<Self> {{
                    let mut fields = ::accel::Fields::of({name:?}, &value, {number})?;
                    ::core::result::Result::Ok({name} {from})
                }}
            }}"
        )
    }
}

/// Cuts at the commas between fields; those within the arguments of a type are inside of `<` and `>`.
fn parts(fields: TokenStream) -> Vec<Vec<TokenTree>> {
    let (mut parts, mut depth, mut is_arrow) = (vec![Vec::new()], 0, false);
    for token in fields {
        if let TokenTree::Punct(mark) = &token {
            match mark.as_char() {
                '<' => depth += 1,
                '>' if !is_arrow => depth -= 1,
                ',' if depth == 0 => {
                    parts.push(Vec::new());
                    continue;
                }
                _ => {}
            }
            is_arrow = mark.as_char() == '-' && mark.spacing() == Spacing::Joint;
        }
        parts.last_mut().expect("one at least").push(token);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The word before the first colon, behind attributes and visibility.
fn field_name(field: &[TokenTree]) -> Option<String> {
    let colon = field.iter().position(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':'))?;
    Some(field[colon.checked_sub(1)?].to_string())
}
