//! Which labels and values of well-known labels are probably misspelt: no instance type has them, and one has what is near.

use super::bits::Bits;
use super::ids::{CatalogId, Key, PoolId, SetId};
use super::intern::{Set, Val, Vals};
use super::problem::{Asked, Problem};
use std::rc::Rc;
use whittle_model::requirements::Operator;
use whittle_model::scheduling::{Known, Meant, meant_key, meant_values};

/// The misspelt values of a NodePool's requirement set.
pub(crate) fn by_node_pool(problem: &mut Problem<'_>, catalog: CatalogId, set: SetId) -> Vec<Meant> {
    let all = Bits::all(problem.catalogs[catalog].len());
    of(problem, catalog, set, None, &all)
}

/// Those of a pod's, of which the NodePool may have what was meant.
pub(crate) fn by_pod(problem: &mut Problem<'_>, pool: PoolId, set: SetId) -> Vec<Meant> {
    let (catalog, types) = (problem.pools[pool].catalog, problem.pools[pool].types.clone());
    of(problem, catalog, set, Some(pool), &types)
}

fn of(problem: &mut Problem<'_>, catalog: CatalogId, set: SetId, pool: Option<PoolId>, offered: &Bits) -> Vec<Meant> {
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
        let Some(mut known) = known.and_then(|_| types.values(key, offered)) else { continue };
        let allowed = pool.and_then(|pool| problem.sets.get(problem.pools[pool].set).get(&key));
        known.retain(|value| allowed.is_none_or(|allowed| allowed.has(value)));
        for value in values {
            let meant = meant(problem, (catalog, pool, key, value), &known);
            if !meant.is_empty() {
                let (key, value) = (problem.names.key_name(key).to_owned(), problem.names.val_name(value).to_owned());
                out.push(Meant { key, value, values: meant.to_vec(), by_pod: pool.is_some() });
            }
        }
    }
    out
}

fn meant(problem: &mut Problem<'_>, asked: Asked, known: &[Val]) -> Rc<[String]> {
    if let Some(meant) = problem.meant.get(&asked) {
        return Rc::clone(meant);
    }
    let (names, (_, pool, key, value)) = (&problem.names, asked);
    let known: Vec<&str> = known.iter().map(|value| names.val_name(*value)).collect();
    let mut meant = meant_values(names.key_name(key), names.val_name(value), known.iter().copied(), Known::All);
    meant.retain(|value| pool.is_none() || known.contains(&value.as_str()));
    let meant: Rc<[String]> = meant.into();
    problem.meant.insert(asked, Rc::clone(&meant));
    meant
}

/// The label that was probably meant by `key`: one that contains it or has the same end, preferably one with the same name
/// after the slash; else one that differs by a typing error.
pub(crate) fn meant_label(problem: &Problem<'_>, offered: &Set, key: &str) -> Option<String> {
    let tail = key.split_once('/').map_or(key, |(_, tail)| tail);
    let is_similar = |name: &str| name.contains(key) || name.ends_with(tail);
    let mut known: Vec<&str> = problem.well_known.iter().map(|k| problem.names.key_name(*k)).collect();
    known.sort_unstable_by_key(|name| (name.split_once('/').is_none_or(|(_, last)| last != tail), *name));
    let own = offered.iter().map(|(k, _)| problem.names.key_name(*k));
    known.into_iter().chain(own).find(|name| is_similar(name)).or_else(|| meant_key(key)).map(str::to_owned)
}
