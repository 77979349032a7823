import {
  type BaseImages,
  command,
  executed,
  firstOf,
  type Found,
  type Generated,
  has,
  lines,
  procfile,
} from './dockerfile.ts'

/** PHP, with Composer if it has a composer.json, served by FrankenPHP. */
export function forPhp(found: Found, images: BaseImages): Generated {
  const { php = '', composer = '' } = images
  const hasComposer = has(found, 'composer.json')
  const lock = has(found, 'composer.lock') ? ' composer.lock' : ''
  const index = firstOf(found, ['public/index.php', 'web/index.php', 'index.php']) ?? 'public/index.php'
  const root = `/app/${index.slice(0, -'index.php'.length)}`.replace(/\/$/, '')
  const web = procfile(found)
  const install =
    'composer install --no-dev --no-interaction --prefer-dist --no-progress --ignore-platform-reqs'
  // Composer finds packages in folders beside composer.json only if they are there.
  const hasPaths = /"type"\s*:\s*"(path|artifact)"/.test(found.texts['composer.json'] ?? '')
  const text = lines(
    ...(hasComposer
      ? [
          `FROM ${composer} AS build`,
          'WORKDIR /app',
          hasPaths ? 'COPY . .' : `COPY composer.json${lock} ./`,
          `RUN --mount=type=cache,target=/tmp/cache ${install} --no-scripts --no-autoloader`,
          !hasPaths && 'COPY . .',
          'RUN composer dump-autoload --no-dev --optimize --no-scripts',
          '',
        ]
      : []),
    `FROM ${php}`,
    'WORKDIR /app',
    hasComposer ? 'COPY --from=build /app /app' : 'COPY . .',
    web ? executed(web) : command(`exec frankenphp php-server --listen :$PORT --root ${root}`),
  )
  const reasons = [
    hasComposer
      ? lock
        ? 'composer.lock: Composer installs exactly what it locks'
        : 'composer.json without a lock file: Composer installs the newest versions that it allows'
      : `it has ${index}`,
    ...(hasPaths ? ['composer.json has packages in folders: all are copied before the installation'] : []),
    web ? `Procfile: ${web}` : `FrankenPHP serves ${root}`,
  ]
  return { kind: 'PHP', reasons, text, images: hasComposer ? [composer, php] : [php] }
}
