//! Parameters in query form, such as `Filter.1.Value.2=x`. They are consumed one by one; those left at the end are unknown.

use crate::errors::Fault;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The parameters below one prefix of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    /// The full prefix, with a trailing dot; empty for the whole request.
    place: String,
    fields: BTreeMap<String, String>,
}

impl Params {
    /// The parameters of a body.
    pub(crate) fn parse(body: &str) -> Result<Self, Fault> {
        let mut fields = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(body.as_bytes()) {
            if fields.insert(name.to_string(), value.to_string()).is_some() {
                return Err(Fault::new("InvalidQueryParameter", format!("The parameter {name} is there twice")));
            }
        }
        Ok(Self { place: String::new(), fields })
    }

    /// The parameters of a request, by name.
    pub(crate) fn of(fields: &BTreeMap<String, String>) -> Self {
        Self { place: String::new(), fields: fields.clone() }
    }

    /// All remaining parameters, by name.
    pub(crate) fn fields(&self) -> &BTreeMap<String, String> {
        &self.fields
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.fields.remove(name)
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<String, Fault> {
        let given = self.text(name).filter(|text| !text.is_empty());
        given.ok_or_else(|| Fault::missing(&self.full(name)))
    }

    pub(crate) fn parsed<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Fault> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Fault::value(&self.full(name), &text))
    }

    /// One of these words.
    pub(crate) fn word(&mut self, name: &str, words: &[&str]) -> Result<Option<String>, Fault> {
        match self.text(name) {
            Some(text) if !words.contains(&text.as_str()) => Err(Fault::value(&self.full(name), &text)),
            given => Ok(given),
        }
    }

    /// The structure of this name, if any of its parameters is present.
    pub(crate) fn structure(&mut self, name: &str) -> Option<Self> {
        let start = format!("{name}.");
        let names: Vec<String> =
            self.fields.range(start.clone()..).map(|(key, _)| key).take_while(|key| key.starts_with(&start)).cloned().collect();
        let fields: BTreeMap<String, String> =
            names.iter().filter_map(|key| Some((key[start.len()..].to_owned(), self.fields.remove(key)?))).collect();
        (!fields.is_empty()).then(|| Self { place: format!("{}{start}", self.place), fields })
    }

    /// The numbered structures of this name, in order.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Self>, Fault> {
        let Some(mut all) = self.structure(name) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        while let Some(next) = all.structure(&(found.len() + 1).to_string()) {
            found.push(next);
        }
        all.finish().map(|()| found)
    }

    /// The numbered texts of this name, in order.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, Fault> {
        let Some(mut all) = self.structure(name) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        while let Some(next) = all.text(&(found.len() + 1).to_string()) {
            found.push(next);
        }
        all.finish().map(|()| found)
    }

    /// Rejects parameters that were not consumed.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        match self.fields.keys().next() {
            Some(name) => Err(Fault::unknown(&self.full(name))),
            None => Ok(()),
        }
    }
}
