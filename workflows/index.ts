// All workflows, by the names under which Temporal knows them: <verb><Kind>.
export * from './compute/containers.ts'
export * from './identity/tenants.ts'
