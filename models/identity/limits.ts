interface Limit {
  /** What a new tenant has. */
  usual: number
  /** The sum over what the tenant's instances and disks hold that it limits, and how many units of that make one of the limit's. */
  sum?: { of: 'cpu_milli' | 'memory_mib' | 'disk_gib'; units: number }
}

/**
 * The limits of a tenant. The schema, the views, the bodies and the checks of sums follow from this table; what has no sum is
 * checked by `needQuota` where it is counted.
 */
export const limits = {
  max_cpu_cores: { usual: 64, sum: { of: 'cpu_milli', units: 1000 } },
  max_llm_tokens_month: { usual: 10_000_000 },
  max_ram_gib: { usual: 256, sum: { of: 'memory_mib', units: 1024 } },
  max_storage_gib: { usual: 2048, sum: { of: 'disk_gib', units: 1 } },
  max_vms_per_vpc: { usual: 250 },
  max_vpcs: { usual: 10 },
} satisfies Record<string, Limit>

export type LimitName = keyof typeof limits
export type Limits = Record<LimitName, number>
export type SomeLimits = { [Name in LimitName]?: number | undefined }

/** Something for each limit, in the table's order. */
export const forEachLimit = <T>(valueOf: (name: LimitName, limit: Limit) => T): Record<LimitName, T> =>
  Object.fromEntries(
    Object.entries(limits).map(([name, limit]) => [name, valueOf(name as LimitName, limit)]),
  ) as Record<LimitName, T>

/** Those that limit a sum. */
export const limitedSums = Object.values(
  forEachLimit((name, { sum }) => (sum ? [{ name, sum: sum.of, units: sum.units }] : [])),
).flat()
