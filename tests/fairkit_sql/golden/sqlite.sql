SELECT
  "t0"."sex" AS "k0",
  CASE
    WHEN CAST("t0"."age" AS REAL) IS NULL
    THEN CAST(NULL AS REAL)
    WHEN CAST("t0"."age" AS REAL) < 30.0
    THEN 29.999999999999996
    WHEN CAST("t0"."age" AS REAL) < 50.0
    THEN 30.0
    ELSE 50.0
  END AS "k1",
  CASE
    WHEN "t0"."income" IS NULL
    THEN CAST(NULL AS REAL)
    WHEN "t0"."income" < 1000.0
    THEN 999.9999999999999
    ELSE 1000.0
  END AS "k2",
  IIF(
    IIF(
      CAST(FLOOR(CAST((
        "t0"."score" - 0.0
      ) AS REAL) / 0.001) AS INTEGER) IS NULL,
      CAST(FLOOR(CAST((
        "t0"."score" - 0.0
      ) AS REAL) / 0.001) AS INTEGER),
      MIN(1000, CAST(FLOOR(CAST((
        "t0"."score" - 0.0
      ) AS REAL) / 0.001) AS INTEGER))
    ) IS NULL,
    IIF(
      CAST(FLOOR(CAST((
        "t0"."score" - 0.0
      ) AS REAL) / 0.001) AS INTEGER) IS NULL,
      CAST(FLOOR(CAST((
        "t0"."score" - 0.0
      ) AS REAL) / 0.001) AS INTEGER),
      MIN(1000, CAST(FLOOR(CAST((
        "t0"."score" - 0.0
      ) AS REAL) / 0.001) AS INTEGER))
    ),
    MAX(
      0,
      IIF(
        CAST(FLOOR(CAST((
          "t0"."score" - 0.0
        ) AS REAL) / 0.001) AS INTEGER) IS NULL,
        CAST(FLOOR(CAST((
          "t0"."score" - 0.0
        ) AS REAL) / 0.001) AS INTEGER),
        MIN(1000, CAST(FLOOR(CAST((
          "t0"."score" - 0.0
        ) AS REAL) / 0.001) AS INTEGER))
      )
    )
  ) AS "s3",
  CAST("t0"."score" >= 0.4999995 AS INTEGER) AS "t0_3",
  IIF(
    (
      "t0"."score" >= 0.4999995
    ) AND (
      "t0"."score" <= 0.5000005
    ),
    "t0"."score",
    CAST(NULL AS REAL)
  ) AS "u0_3",
  MOD(
    MOD(
      (
        MOD(
          (
            MOD(
              (
                377436006 * MOD(MOD("t0"."team", 2147483647) + 2147483647, 2147483647)
              ) + 35438376,
              2147483647
            ) * MOD(MOD("t0"."team", 2147483647) + 2147483647, 2147483647)
          ) + 1781346422,
          2147483647
        ) * MOD(MOD("t0"."team", 2147483647) + 2147483647, 2147483647)
      ) + 1522678995,
      2147483647
    ),
    1024
  ) AS "k4",
  "t0"."a""; DROP TABLE people; --`'[x]" AS "k5",
  AVG("t0"."score") AS "m3",
  MIN("t0"."score") AS "l3",
  MAX("t0"."score") AS "h3",
  COUNT(*) AS "n"
FROM "fairkit_rows" AS "t0"
GROUP BY
  1,
  2,
  3,
  4,
  5,
  6,
  7,
  8
LIMIT 2097153
