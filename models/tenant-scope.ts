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
 * Refuses every query without a `tenant_id` in its filter: a forgotten scope fails in the first test that runs the
 * query.
 */
export function tenantScoped<D>(schema: Schema<D>): void {
  const field = tenantField(schema as Schema) ?? 'tenant_id'
  schema.pre(queries, { query: true, document: false }, function (this: Query<unknown, unknown>) {
    const filter: Record<string, unknown> = this.getFilter()
    if (typeof filter[field] !== 'string' && !isEveryTenant(this.getOptions())) {
      throw new TenantScopeMissing(`${this.model.modelName}: a query without tenant_id`)
    }
  })
  schema.pre('aggregate', function (this: Aggregate<unknown[]>) {
    const [first] = this.pipeline()
    const scoped = first && '$match' in first && typeof first.$match[field] === 'string'
    if (!scoped && !isEveryTenant(this.options)) {
      throw new TenantScopeMissing(`${this.model().modelName}: an aggregation without tenant_id`)
    }
  })
}

const isEveryTenant = (options: object): boolean => 'everyTenant' in options && options.everyTenant === true
