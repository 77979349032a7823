interface Limit {
  /** The default for a new tenant. */
  usual: number
  /** The limited sum over the reservations of the tenant, and how many of its units make one unit of the limit. */
  sum?: { of: 'cpu_milli' | 'memory_mib' | 'disk_gib'; units: number }
}

/**
 * The limits of a tenant. The schema, the views, the request bodies and the checks of sums follow from this table. A
 * limit without a sum is checked by `needQuota`, where its resources are counted.
 */
export const limits = {
  max_archive_gib: { usual: 100 },
  max_backup_gib: { usual: 500 },
  max_certificates: { usual: 100 },
  max_connectors: { usual: 50 },
  max_cpu_cores: { usual: 64, sum: { of: 'cpu_milli', units: 1000 } },
  max_deploy_servers: { usual: 1 },
  max_evals_per_workflow: { usual: 200 },
  max_llm_tokens_month: { usual: 10_000_000 },
  max_load_balancers: { usual: 20 },
  max_rag_documents: { usual: 10_000 },
  max_rag_gib: { usual: 20 },
  max_ram_gib: { usual: 256, sum: { of: 'memory_mib', units: 1024 } },
  max_storage_gib: { usual: 2048, sum: { of: 'disk_gib', units: 1 } },
  max_subnets: { usual: 200 },
  max_tools: { usual: 200 },
  max_vms_per_vpc: { usual: 250 },
  max_vpcs: { usual: 10 },
  max_workflow_versions: { usual: 5_000 },
  max_workflows: { usual: 100 },
} satisfies Record<string, Limit>

export type LimitName = keyof typeof limits
export type Limits = Record<LimitName, number>
export type SomeLimits = { [Name in LimitName]?: number | undefined }

/** Maps each limit to a value, in the order of the table. */
export const forEachLimit = <T>(valueOf: (name: LimitName, limit: Limit) => T): Record<LimitName, T> =>
  Object.fromEntries(
    Object.entries(limits).map(([name, limit]) => [name, valueOf(name as LimitName, limit)]),
  ) as Record<LimitName, T>

/** The limits on sums. */
export const limitedSums = Object.values(
  forEachLimit((name, { sum }) => (sum ? [{ name, sum: sum.of, units: sum.units }] : [])),
).flat()
