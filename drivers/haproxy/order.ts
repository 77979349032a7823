import type { RouteSpec } from '../load-balancers.ts'

// Which of several matching routes is taken: the lowest priority, then the most specific host, path and method.

const hostRank = ({ host_match }: RouteSpec): number =>
  host_match === null ? 0 : host_match.startsWith('*.') ? host_match.length : 1000

const pathRanks = { regex: 1, prefix: 2, exact: 10_000 }

const pathRank = ({ path_match, path_match_type }: RouteSpec): number =>
  path_match === null
    ? 0
    : pathRanks[path_match_type] + (path_match_type === 'prefix' ? path_match.length : 0)

const ranks = [
  hostRank,
  pathRank,
  ({ listener_port }: RouteSpec): number => (listener_port === null ? 0 : 1),
  ({ method }: RouteSpec): number => (method === null ? 0 : 1),
]

function compare(one: RouteSpec, other: RouteSpec): number {
  if (one.priority !== other.priority) return one.priority - other.priority
  for (const rank of ranks) if (rank(one) !== rank(other)) return rank(other) - rank(one)
  return one.id < other.id ? -1 : 1
}

export const inOrder = (routes: RouteSpec[]): RouteSpec[] => routes.toSorted(compare)
