import { clickhouse } from './clickhouse.ts'
import { dragonfly } from './dragonfly.ts'
import type { DatabaseEngine } from './engine.ts'
import { keydb } from './keydb.ts'
import { mariadb } from './mariadb.ts'
import { mongodb } from './mongodb.ts'
import { mysql } from './mysql.ts'
import { postgresql } from './postgresql.ts'
import { redis } from './redis.ts'

/** The engines of databases, by the `type` of a database. */
export const engines = { postgresql, mysql, mariadb, mongodb, redis, keydb, dragonfly, clickhouse }

export type DatabaseType = keyof typeof engines
export const databaseTypes = Object.keys(engines) as [DatabaseType, ...DatabaseType[]]
export const engineOf = (type: DatabaseType): DatabaseEngine => engines[type]

/** The operator's images without their tags, instead of the public ones. */
export type DatabaseImages = { [Type in DatabaseType]?: string | undefined }

/** The setting that names an engine's image. */
export const imageSettingOf = (type: DatabaseType) =>
  `KEELSON_DATABASE_${type.toUpperCase() as Uppercase<DatabaseType>}_IMAGE` as const

export function imageOf(type: DatabaseType, version: string, images: DatabaseImages): string {
  const { image, tagOf = (one: string) => one } = engineOf(type)
  return `${images[type] ?? image}:${tagOf(version)}`
}

const numbersOf = (version: string): number[] => version.split('.').map(Number)

/** Above 0 if `a` is newer than `b`. */
function compareVersions(a: string, b: string): number {
  const [left, right] = [numbersOf(a), numbersOf(b)]
  const at = left.findIndex((number, index) => number !== (right[index] ?? 0))
  return at === -1 ? 0 : (left[at] ?? 0) - (right[at] ?? 0)
}

/** Whether an engine of a version takes a backup that another version wrote. */
export const takesCopyOf = (version: string, written: string): boolean =>
  compareVersions(version, written) >= 0

/** Whether an engine of a version takes the files of another version. */
export const takesFilesOf = (type: DatabaseType, version: string, written: string): boolean =>
  version === written || upgradesOf(type, written).includes(version)

/** Versions to which a database gets by a backup that is restored: newer ones of other lines, the newest first. */
export function majorUpgradesOf(type: DatabaseType, version: string): string[] {
  const taken = upgradesOf(type, version)
  return engineOf(type).versions.filter((one) => compareVersions(one, version) > 0 && !taken.includes(one))
}

/** Versions that take a database's data as they are: newer ones of the same line, the newest first. */
export function upgradesOf(type: DatabaseType, version: string): string[] {
  const { versions, line } = engineOf(type)
  const lineOf = (one: string): string => numbersOf(one).slice(0, line).join('.')
  return versions.filter((one) => lineOf(one) === lineOf(version) && compareVersions(one, version) > 0)
}
