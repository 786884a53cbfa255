//! Which values of well-known labels are probably misspelt: no instance type has them, and one has a value that is near.

use super::bits::Bits;
use super::ids::{CatalogId, Key, SetId};
use super::intern::{Val, Vals};
use super::problem::Problem;
use std::rc::Rc;
use whittle_model::requirements::Operator;
use whittle_model::scheduling::{Known, Meant, meant_values};

/// The misspelt values of a requirement set, which is that of a pod or of a NodePool.
pub(crate) fn of(problem: &mut Problem<'_>, catalog: CatalogId, set: SetId, by_pod: bool) -> Vec<Meant> {
    let listed = |(key, allowed): (&Key, &Vals)| match allowed.operator() {
        Operator::In if problem.well_known.contains(key) => Some((*key, allowed.listed().to_vec())),
        _ => None,
    };
    let asked: Vec<(Key, Vec<Val>)> = problem.sets.get(set).iter().filter_map(listed).collect();
    let mut out = Vec::new();
    for (key, values) in asked {
        let types = &problem.catalogs[catalog];
        // What some types do not say may be anything; and one value that there is will do.
        let known = types.values(key, &Bits::all(types.len())).filter(|known| !values.iter().any(|value| known.contains(value)));
        let Some(known) = known else { continue };
        for value in values {
            let meant = meant(problem, (catalog, key, value), &known);
            if !meant.is_empty() {
                let (key, value) = (problem.names.key_name(key).to_owned(), problem.names.val_name(value).to_owned());
                out.push(Meant { key, value, values: meant.to_vec(), by_pod });
            }
        }
    }
    out
}

fn meant(problem: &mut Problem<'_>, asked: (CatalogId, Key, Val), known: &[Val]) -> Rc<[String]> {
    if let Some(meant) = problem.meant.get(&asked) {
        return Rc::clone(meant);
    }
    let (names, (_, key, value)) = (&problem.names, asked);
    let known: Vec<&str> = known.iter().map(|value| names.val_name(*value)).collect();
    let meant: Rc<[String]> = meant_values(names.key_name(key), names.val_name(value), known, Known::All).into();
    problem.meant.insert(asked, Rc::clone(&meant));
    meant
}
