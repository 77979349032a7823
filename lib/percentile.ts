/** By the nearest rank: a value of the list. `share`: 0.95 for the 95th. Null: the list is empty. */
export function percentile(values: readonly number[], share: number): number | null {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.ceil(sorted.length * share) - 1] ?? null
}
