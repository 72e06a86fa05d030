//! The input of a search.

use super::model::Model;
use super::names::Names;
use super::scripts::{Scripts, Text};
use crate::history::Header;

/// A history, or a [projection](super::projection) of one.
pub(super) struct Subject<'a> {
    pub(super) header: &'a Header,
    pub(super) keys: &'a Names,
    pub(super) scripts: &'a Scripts,
    /// The accounts among the keys.
    pub(super) accounts: Vec<u32>,
    pub(super) opening: Option<Text>,
    /// Greater than the number of any transaction.
    pub(super) transactions: usize,
}

impl<'a> Subject<'a> {
    /// The whole history.
    pub(super) fn whole(model: &'a Model) -> Self {
        let accounts = model.header.bank.iter().flat_map(|bank| &bank.accounts);
        let accounts = accounts.filter_map(|account| model.keys.find(0, account.as_bytes()));
        Self {
            header: &model.header,
            keys: &model.keys,
            scripts: &model.scripts,
            accounts: accounts.collect(),
            opening: model.opening,
            transactions: model.transactions.len(),
        }
    }
}
