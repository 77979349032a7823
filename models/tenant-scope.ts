import type { Aggregate, Query, Schema } from 'mongoose'

/** Declares a query over all tenants: `.setOptions(everyTenant)`. For operators and the platform itself. */
export const everyTenant = { everyTenant: true }

/** The field with the tenant of a record; null if the model has none. A time series has it in `meta`. */
export const tenantField = (schema: Schema): 'tenant_id' | 'meta.tenant_id' | null =>
  (['tenant_id', 'meta.tenant_id'] as const).find((path) => schema.path(path)) ?? null

/** A query without a tenant in its filter: a bug. The query does not run. */
export class TenantScopeMissing extends Error {
  override readonly name = 'TenantScopeMissing'
}

const queries =
  /^(find|findOne|findOneAndUpdate|findOneAndDelete|findOneAndReplace|countDocuments|distinct|updateOne|updateMany|replaceOne|deleteOne|deleteMany)$/

/**
 * How long MongoDB may take for a query whose filter or number of documents a tenant shapes. The longest measured list
 * takes 0.1 s; the rest is for a busy machine.
 */
export const maxTimeMS = 10_000
const reads = /^(find|findOne|countDocuments|distinct)$/

/**
 * Refuses every query without a `tenant_id` in its filter: a forgotten scope fails in the first test that runs the
 * query. Reads of one tenant's documents end after `maxTimeMS`.
 */
export function tenantScoped<D>(schema: Schema<D>): void {
  const field = tenantField(schema as Schema) ?? 'tenant_id'
  schema.pre(queries, { query: true, document: false }, function (this: Query<unknown, unknown>) {
    const filter: Record<string, unknown> = this.getFilter()
    if (typeof filter[field] !== 'string' && !isEveryTenant(this.getOptions())) {
      throw new TenantScopeMissing(`${this.model.modelName}: a query without tenant_id`)
    }
  })
  schema.pre(reads, { query: true, document: false }, function (this: Query<unknown, unknown>) {
    const { maxTimeMS: given, everyTenant: isEvery } = this.getOptions() as {
      maxTimeMS?: number
      everyTenant?: true
    }
    // Work of the platform over all tenants has its own bounds.
    if (given === undefined && !isEvery) this.maxTimeMS(maxTimeMS)
  })
  schema.pre('aggregate', function (this: Aggregate<unknown[]>) {
    const [first] = this.pipeline()
    const scoped = first && '$match' in first && typeof first.$match[field] === 'string'
    if (!scoped && !isEveryTenant(this.options)) {
      throw new TenantScopeMissing(`${this.model().modelName}: an aggregation without tenant_id`)
    }
    if (scoped) this.option({ maxTimeMS })
  })
}

const isEveryTenant = (options: object): boolean => 'everyTenant' in options && options.everyTenant === true
