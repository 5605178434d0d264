//! Sorts lists that are short or rarely sorted. The sorts of the standard library are compiled for
//! each type of elements and each comparison, to about 3 KB each. Of this sort only the comparison
//! and the exchange of two elements are.

use std::cmp::Ordering;

/// Sorts `list` by `compare`, which must be a total order. Equal elements keep their order.
/// Allocates 16 bytes per element, unless the list is sorted already.
pub(crate) fn sort_by<T>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    if list.is_sorted_by(|a, b| compare(a, b).is_le()) {
        return;
    }
    let mut places = places(list.len(), &|a, b| compare(&list[a], &list[b]));
    for at in 0..list.len() {
        while places[at] != at {
            let place = places[at];
            list.swap(at, place);
            places.swap(at, place);
        }
    }
}

/// Returns for each of `len` elements its place in the order of `compare`.
fn places(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_unstable_by(|a, b| compare(*a, *b).then(a.cmp(b)));
    let mut places = vec![0; len];
    for (place, at) in order.into_iter().enumerate() {
        places[at] = place;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_as_by_the_stable_sort_of_the_standard_library() {
        for len in (0..20).chain([100, 1_000]) {
            for keys in [1, 3, 1_009] {
                let element = |at: usize| (at * 7_919 % 1_009 % keys, at.to_string());
                let list: Vec<_> = (0..len).map(element).collect();
                let (mut sorted, mut expected) = (list.clone(), list);
                sort_by(&mut sorted, |a, b| b.0.cmp(&a.0));
                expected.sort_by_key(|element| std::cmp::Reverse(element.0));
                assert_eq!(sorted, expected);
            }
        }
    }
}
